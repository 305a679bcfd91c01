"""Sentences with answers that Python computes by itself: fractions, decimal, datetime, zoneinfo.

Written before the rules of November 2026 and not changed to suit them. Each sentence is `right`,
`silent` (no answer, or a question back) or `wrong`.
"""

# ruff: noqa: E501 - the sentences stand one beside the other

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

BERLIN = ZoneInfo("Europe/Berlin")
ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


@dataclass(frozen=True)
class Case:
    """A sentence, the local time at which it is said, and what is true."""

    sentence: str
    now: datetime
    expected: object
    """None: no rule may take it"""


def words(number: int) -> str:
    """Return a whole number in English words."""
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10] + (f"-{ONES[number % 10]}" if number % 10 else "")
    for size, name in (
        (10**9, "billion"),
        (10**6, "million"),
        (1000, "thousand"),
        (100, "hundred"),
    ):
        if number >= size:
            head, rest = divmod(number, size)
            said = f"{words(head)} {name}"
            if not rest:
                return said
            return f"{said} {'and ' if rest < 100 else ''}{words(rest)}"
    raise AssertionError


class Generator:
    """Draws cases. The same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def cases(self, count: int) -> Iterator[Case]:
        makers: list[Callable[[], Case]] = [
            self.plain_sum, self.plain_sum, self.longer_sum, self.percent, self.phrase, self.power,
            self.conversion, self.conversion, self.several_units, self.date_of, self.days_between,
            self.days_until, self.day_after, self.weekday, self.until_clock, self.timer, self.timer,
            self.reminder_in, self.alarm, self.time_in, self.negated, self.no_sum,
        ]  # fmt: skip
        for number in range(count):
            yield makers[number % len(makers)]()

    # Sums.

    def number(self, small: bool = False) -> tuple[str, Fraction]:
        """Return a number as it is said or written, and its value."""
        kind = self.draw.random()
        if kind < 0.3:
            value = self.draw.randint(0, 99 if small else self.draw.choice([20, 999, 10**6]))
            return words(value), Fraction(value)
        if kind < 0.4:
            head, tail = self.draw.randint(0, 99), self.draw.randint(0, 9)
            return f"{words(head)} point {words(tail)}", Fraction(f"{head}.{tail}")
        if kind < 0.45 and not small:
            head, tail = self.draw.randint(0, 9), self.draw.randint(1, 9)
            return f"{words(head)} point {words(tail)} million", Fraction(f"{head}.{tail}") * 10**6
        if kind < 0.5 and not small:
            head = self.draw.randint(1, 9)
            return f"{words(head)} thousand million", Fraction(head) * 10**9
        if kind < 0.6:
            text = f"{self.draw.randint(0, 99)}.{self.draw.randint(0, 99):02}"
            return text, Fraction(text)
        if kind < 0.65:
            text = f".{self.draw.randint(1, 9)}"
            return text, Fraction(f"0{text}")
        if kind < 0.7 and not small:
            value = self.draw.randint(1000, 10 ** self.draw.choice([6, 9, 17]))
            return f"{value:,}", Fraction(value)
        value = self.draw.randint(0, 99 if small else self.draw.choice([20, 999, 10**17]))
        return str(value), Fraction(value)

    def asked(self, text: str) -> str:
        front = self.draw.choice(
            ["What is {}?", "What's {}?", "How much is {}?", "Calculate {}.", "{}", "Tell me what {} is",
             "what is {}", "Can you tell me what {} is?", "{} equals?"]
        )  # fmt: skip
        return front.format(text)

    def sign(self) -> tuple[str, Callable[[Fraction, Fraction], Fraction]]:
        plus, minus = Fraction.__add__, Fraction.__sub__
        times, over = Fraction.__mul__, Fraction.__truediv__
        return self.draw.choice([
            ("plus", plus), ("+", plus), ("minus", minus), ("-", minus), ("\u2212", minus),
            ("times", times), ("*", times), ("×", times), ("multiplied by", times), ("x", times),
            ("divided by", over), ("/", over), ("÷", over),
        ])  # fmt: skip

    def plain_sum(self) -> Case:
        (a, x), (b, y), (sign, apply) = self.number(), self.number(), self.sign()
        negative = self.draw.random() < 0.1
        if negative:
            a, x = self.draw.choice(["minus ", "-", "\u2212", "negative "]) + a, -x
        value = apply(x, y) if y or apply is not Fraction.__truediv__ else "undefined"
        return self.case(self.asked(f"{a} {sign} {b}"), value)

    def longer_sum(self) -> Case:
        """Return a sum of three or four numbers in the usual order: products first."""
        text, value = self.number(small=True)
        total, product = Fraction(0), value
        for _ in range(self.draw.randint(2, 3)):
            (word, apply), (said, other) = self.sign(), self.number(small=True)
            if apply is Fraction.__truediv__ and not other:
                said, other = "two", Fraction(2)
            text += f" {word} {said}"
            if apply in (Fraction.__add__, Fraction.__sub__):
                total, product = total + product, apply(Fraction(0), other)
            else:
                product = apply(product, other)
        return self.case(self.asked(text), total + product)

    def percent(self) -> Case:
        (a, x), (b, y) = self.number(small=True), self.number(small=True)
        sign = self.draw.choice([" percent", "%" if a[-1].isdigit() else " percent"])
        kind = self.draw.choice(["of", "off", "off of"])
        value = x * y / 100 if kind == "of" else y - x * y / 100
        said = f"{a}{sign} {kind} {b}"
        if kind == "of" and self.draw.random() < 0.3:  # the product first
            (c, z), (name, apply) = (
                self.number(small=True),
                self.draw.choice([("plus", Fraction.__add__), ("minus", Fraction.__sub__)]),
            )
            said, value = f"{said} {name} {c}", apply(value, z)
        return self.case(self.asked(said), value)

    def phrase(self) -> Case:
        (a, x), (b, y) = self.number(small=True), self.number(small=True)
        if not y:
            b, y = "four", Fraction(4)
        return self.case(*self.draw.choice([
            (f"Divide {a} by {b}.", x / y), (f"Multiply {a} by {b}", x * y),
            (f"Add {a} and {b}", x + y), (f"Subtract {a} from {b}", y - x),
            (f"What's the sum of {a} and {b}?", x + y),
            (f"What is the product of {a} and {b}?", x * y), (f"What is half of {a}?", x / 2),
            (f"What is twice {a}?", 2 * x), (f"What's the difference between {a} and {b}?", None),
        ]))  # fmt: skip

    def power(self) -> Case:
        base, exponent = self.draw.randint(0, 20), self.draw.randint(0, 9)
        root = self.draw.randint(0, 40)
        return self.case(*self.draw.choice([
            (f"What is {base} squared?", Fraction(base) ** 2),
            (f"What is {words(base)} cubed?", Fraction(base) ** 3),
            (f"What is {base} cubed squared?", Fraction(base) ** 6),
            (f"What is {base} to the power of {exponent}?", Fraction(base) ** exponent),
            (f"What is {base}^{exponent}?", Fraction(base) ** exponent),
            (f"What is the square root of {root * root}?", Fraction(root)),
            ("Two to the power of three squared", None),
        ]))  # fmt: skip

    # Units.

    def conversion(self) -> Case:
        table = self.draw.choice([LENGTHS, MASSES, TIMES, SPEEDS, VOLUMES])
        (a, x), (b, y) = self.draw.sample(sorted(table.items()), 2)
        said, value = self.number(small=True)
        if table is LENGTHS and self.draw.random() < 0.1:
            said, value = self.draw.choice(["minus ", "\u2212"]) + said, -value
        text = self.draw.choice(["What is {} {} in {}?", "Convert {} {} to {}", "{} {} in {}",
                                 "How much is {} {} in {}?"])  # fmt: skip
        return self.case(text.format(said, a, b), ("unit", value * x / y))

    def several_units(self) -> Case:
        feet, inches = self.draw.randint(1, 9), self.draw.randint(1, 11)
        degrees = self.draw.randint(-100, 200)
        said = f"minus {-degrees}" if degrees < 0 else str(degrees)
        return self.case(*self.draw.choice([
            (f"What is {feet} feet {inches} inches in centimetres?",
             ("unit", (12 * feet + inches) * Fraction("2.54"))),
            (f"How tall is {feet} foot {inches} in metres?", None),
            (f"What is {said} degrees Celsius in Fahrenheit?", ("unit", Fraction(9 * degrees, 5) + 32)),
            (f"What's {said} Fahrenheit in Celsius?", ("unit", Fraction(5 * (degrees - 32), 9))),
            (f"How many inches are in {feet} feet?", ("unit", Fraction(12 * feet))),
            (f"How many grams in {feet} kilos?", ("unit", Fraction(1000 * feet))),
            ("How many fluid ounces are in a cup?", ("unit", Fraction(8))),
            (f"What is minus {feet} feet {inches} inches in centimetres?", None),
        ]))  # fmt: skip

    # Dates.

    def day(self) -> date:
        return date(2026, 1, 1) + timedelta(self.draw.randint(0, 1200))

    def said_day(self, day: date, year: bool = True) -> str:
        month, tail = MONTHS[day.month - 1], f" {day.year}" if year else ""
        nth = f"{day.day}{'th' if 10 < day.day < 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day.day % 10, 'th')}"
        return self.draw.choice([
            f"{month} {nth}{tail}", f"{nth} of {month}{tail}", f"the {nth} of {month}{tail}",
            f"{day.day} {month}{tail}", f"{month} {day.day}{',' if year else ''}{tail}",
        ])  # fmt: skip

    def date_of(self) -> Case:
        now, day = self.moment(), self.day()
        verb = "was" if day < now.date() else "is"
        return Case(f"What day of the week {verb} {self.said_day(day)}?", now, ("date", day))

    def days_between(self) -> Case:
        a, b = self.day(), self.day()
        text = self.draw.choice(["between {} and {}", "from {} to {}"])
        asked = f"How many days are {text.format(self.said_day(a), self.said_day(b))}?"
        return self.case(asked, ("days", abs((a - b).days)))

    def days_until(self) -> Case:
        now = self.moment()
        day = now.date() + timedelta(self.draw.randint(1, 600))
        back = now.date() - timedelta(self.draw.randint(1, 600))
        return self.draw.choice([
            Case(f"How many days until {self.said_day(day)}?", now, ("days", (day - now.date()).days)),
            Case(f"How many days since {self.said_day(back)}?", now,
                 ("days", (now.date() - back).days)),
        ])  # fmt: skip

    def day_after(self) -> Case:
        now, count = self.moment(), self.draw.randint(1, 400)
        unit, size = self.draw.choice([("days", 1), ("weeks", 7)])
        text = self.draw.choice(["What day is it in {} {}?", "What is the date in {} {}?",
                                 "What will the date be in {} {}?"])  # fmt: skip
        said = self.draw.choice([str(count), words(count)])
        day = now.date() + timedelta(count * size)
        return Case(text.format(said, unit), now, ("date", day))

    def weekday(self) -> Case:
        now, index = self.moment(), self.draw.randint(0, 6)
        ahead = (index - now.weekday()) % 7 or 7
        other = self.draw.randint(0, 6)
        return self.draw.choice([
            Case(f"How many days until {DAYS[index]}?", now, ("days", ahead)),
            Case(f"How many days from {DAYS[index]} to {DAYS[other]}?", now,
                 ("days", (other - index) % 7 or 7)),
            Case("How many days between today and yesterday?", now, ("days", 1)),
            Case("What was yesterday's date?", now, ("date", now.date() - timedelta(1))),
            Case("What's tomorrow's date?", now, ("date", now.date() + timedelta(1))),
        ])  # fmt: skip

    # Times. The clock is Berlin's, because its nights of March and October are odd.

    def moment(self) -> datetime:
        """Return a local time, often in an odd night."""
        if self.draw.random() < 0.4:
            night = self.draw.choice([date(2026, 3, 28), date(2026, 3, 29), date(2026, 10, 24),
                                      date(2026, 10, 25), date(2028, 2, 29), date(2026, 1, 1)])  # fmt: skip
            start = datetime(night.year, night.month, night.day, tzinfo=BERLIN)
        else:
            start = datetime(2026, 1, 1, tzinfo=BERLIN) + timedelta(self.draw.randint(0, 1000))
        at = start.astimezone(UTC) + timedelta(minutes=self.draw.randint(0, 1439))
        return at.astimezone(BERLIN).replace(tzinfo=None)

    def until_clock(self) -> Case:
        now = self.moment()
        hour, minute, half = (
            self.draw.randint(1, 12),
            self.draw.choice([0, 15, 30, 45]),
            self.draw.choice("ap"),
        )
        at = (hour % 12 + (12 if half == "p" else 0), minute)
        wanted = next_time(now, at)
        said = f"{hour}:{minute:02} {half}m" if minute else f"{hour} {half}m"
        asked = self.draw.choice(["How long until {}?", "How much time until {}?"]).format(said)
        return Case(asked, now, ("seconds", seconds_between(now, wanted)))

    def timer(self) -> Case:
        hours, minutes, seconds = (self.draw.randint(1, most) for most in (12, 59, 59))
        said, length = self.draw.choice([
            (f"{minutes} minutes", 60 * minutes), (f"{words(minutes)} minutes", 60 * minutes),
            (f"{words(hours)} hours and {words(minutes)} minutes", 3600 * hours + 60 * minutes),
            (f"{minutes} minutes and {seconds} seconds", 60 * minutes + seconds),
            ("half an hour", 1800), ("an hour and a half", 5400), (".5 minutes", 30),
            (f"{minutes}.5 minutes", 60 * minutes + 30), ("a quarter of an hour", 900),
            (f"{words(minutes)} and a half minutes", 60 * minutes + 30),
        ])  # fmt: skip
        name = self.draw.choice(["pasta", "tea", "egg", "laundry"])
        text = self.draw.choice([
            "Set a timer for {}.", "Please set a timer for {}", "Start a timer for {}.", "Timer for {}",
            "Could you set a timer for {}, please?", f"Set a {name} timer for {{}}.",
            f"Set a timer for {{}} for the {name}", "I need a timer for {}", "Count down from {}",
        ])  # fmt: skip
        return self.case(text.format(said), ("start", length))

    def reminder_in(self) -> Case:
        now, count = self.moment(), self.draw.randint(1, 20)
        unit, size = self.draw.choice([("minutes", 60), ("hours", 3600)])
        text = self.draw.choice(
            ["Remind me in {} {} to call Anna.", "Remind me to call Anna in {} {}"]
        )
        at = now.replace(tzinfo=BERLIN).astimezone(UTC) + timedelta(seconds=count * size)
        said = self.draw.choice([str(count), words(count)])
        return Case(text.format(said, unit if count > 1 else unit[:-1]), now, ("remind", at))

    def alarm(self) -> Case:
        now = self.moment()
        hour, minute, half = (
            self.draw.randint(1, 12),
            self.draw.randint(0, 59),
            self.draw.choice("ap"),
        )
        at = next_time(now, (hour % 12 + (12 if half == "p" else 0), minute))
        text = self.draw.choice([
            "Wake me at {}", "Wake me up at {}.", "Set an alarm for {}", "Remind me at {}.",
            "Set a reminder for {}", "Remind me at {} to call mum",
        ])  # fmt: skip
        expected = ("remind", at.replace(tzinfo=BERLIN).astimezone(UTC))
        return Case(text.format(f"{hour}:{minute:02} {half}m"), now, expected)

    def time_in(self) -> Case:
        now = self.moment()
        city, zone = self.draw.choice(sorted(CITIES.items()))
        text = self.draw.choice(
            ["What time is it in {}?", "What's the time in {}?", "In {}, what time is it?"]
        )
        there = now.replace(tzinfo=BERLIN).astimezone(ZoneInfo(zone))
        return Case(text.format(city), now, ("time in", there.strftime("%H:%M %A")))

    # What no rule may take.

    def negated(self) -> Case:
        request = self.draw.choice([
            "set a timer for 5 minutes", "set an alarm for 7 am", "wake me at 6:30 am",
            "remind me in an hour to call mum", "cancel the timer", "start a pasta timer for ten minutes",
            "cancel all alarms", "add 5 minutes to the timer", "pause the timer",
        ])  # fmt: skip
        past = (request.replace("wake me", "woke me").replace("cancel", "cancelled")
                .replace("remind ", "reminded ").replace("start", "started").replace("add", "added")
                .replace("pause", "paused"))  # fmt: skip
        text = self.draw.choice([
            f"Don't {request}.", f"Do not {request}", f"Never {request}.", f"Please don't {request}",
            f"Could you not {request}?", f"You should not {request}", f"I {past}.", f"He {past}.",
            f"She asked me to {request}", f"I told him to {request}.", f"My mother {past}",
            f"Did you {request}?", f"Yesterday I {past}", f"Why did you {request}?", f"I won't {request}",
            f"Why would I {request}?", f"If you {request} I will scream.", f"They always {request}",
            f"I forgot to {request}.", f"He said {request}", f"You {past} for him", f"We {past}.",
            f"I already {past}", f"I wouldn't {request}", f"Who {past}?", f"Nobody {past}",
        ])  # fmt: skip
        return self.case(text, None)

    def no_sum(self) -> Case:
        n = self.draw.randint
        text = self.draw.choice([
            f"{n(1, 12)}/{n(1, 28)}/{n(1990, 2030)}", f"{n(1990, 2030)}-{n(1, 12):02}-{n(1, 28):02}",
            f"{n(200, 999)}-{n(200, 999)}-{n(1000, 9999)}", f"1-800-{n(200, 999)}-{n(1000, 9999)}",
            f"{n(0, 9)}-{n(0, 9)}", f"{n(0, 9)}-{n(0, 9)}.", f"{n(1, 24)}/{n(2, 9)}", f"{n(1, 9)}-{n(1, 9)}-{n(1, 9)}.",
            f"√{n(4, 99)} + {n(1, 9)}", f"[{n(1, 9)}+{n(1, 9)}]*{n(1, 9)}",
            f"0x{n(10, 99)} + {n(1, 9)}", f"What is {n(1, 12)}/{n(1, 28)}/{n(1990, 2030)}?",
            f"What's {n(200, 999)}-{n(1000, 9999)}?", f"They won {n(1, 9)} to {n(0, 9)}",
            f"{n(1, 9)}x{n(1, 9)}", f"{n(640, 1920)}x{n(480, 1080)}", f"The A{n(2, 9)}-{n(100, 900)}",
            f"{n(1, 9)} days for the trip", f"{n(2, 9)} weeks for the project", f"{n(1, 9)}:{n(0, 9)}",
            f"{n(1, 9)} ± {n(1, 9)}", f"{n(1, 9)} & {n(1, 9)}", f"{n(1, 9)} mod {n(1, 9)}",
            f"{n(100, 255)}.{n(0, 255)}.{n(0, 255)}.{n(1, 9)}", f"room {n(1, 9)}-{n(100, 900)}",
            f"{n(1, 9)}% + {n(1, 9)}", f"{n(1, 9)} + {n(1, 9)} apples", f"1,{n(0, 9)} + 2",
        ])  # fmt: skip
        return self.case(text, None)

    def case(self, sentence: str, expected: object) -> Case:
        return Case(sentence, datetime(2026, 11, 22, 13, 4), expected)


LENGTHS = {name: Fraction(value) for name, value in [
    ("metres", "1"), ("kilometres", "1000"), ("centimeters", "0.01"), ("mm", "0.001"),
    ("inches", "0.0254"), ("feet", "0.3048"), ("yards", "0.9144"), ("miles", "1609.344"),
]}  # fmt: skip
MASSES = {name: Fraction(value) for name, value in [
    ("grams", "1"), ("kilograms", "1000"), ("kg", "1000"), ("ounces", "28.349523125"),
    ("pounds", "453.59237"), ("stone", "6350.29318"), ("tonnes", "1000000"),
]}  # fmt: skip
TIMES = {name: Fraction(value) for name, value in [
    ("seconds", 1), ("minutes", 60), ("hours", 3600), ("days", 86400), ("weeks", 604800),
]}  # fmt: skip
SPEEDS = {"miles per hour": Fraction("0.44704"), "kilometres per hour": Fraction(1000, 3600),
          "knots": Fraction(1852, 3600)}  # fmt: skip
VOLUMES = {"litres": Fraction(1), "millilitres": Fraction(1, 1000), "gallons": Fraction("3.785411784"),
           "pints": Fraction("0.473176473"), "cups": Fraction("0.2365882365")}  # fmt: skip
CITIES = {
    "Tokyo": "Asia/Tokyo", "New York": "America/New_York", "London": "Europe/London",
    "Los Angeles": "America/Los_Angeles", "Sydney": "Australia/Sydney", "Paris": "Europe/Paris",
    "Buenos Aires": "America/Argentina/Buenos_Aires", "Kathmandu": "Asia/Kathmandu",
    "Cairo": "Africa/Cairo", "Japan": "Asia/Tokyo", "India": "Asia/Kolkata", "Berlin": "Europe/Berlin",
    "Honolulu": "Pacific/Honolulu", "Delhi": "Asia/Kolkata", "San Francisco": "America/Los_Angeles",
    "Beijing": "Asia/Shanghai", "the eastern time zone": "America/New_York",
}  # fmt: skip


def next_time(now: datetime, at: tuple[int, int]) -> datetime:
    """Return the first local moment after `now` at a time of day, as the clock on a wall shows it."""
    start = now.replace(tzinfo=BERLIN).astimezone(UTC)
    for minute in range(1, 3 * 24 * 60):
        later = (start + timedelta(minutes=minute)).replace(second=0).astimezone(BERLIN)
        if (later.hour, later.minute) == at:
            return later.replace(tzinfo=None)
    raise AssertionError  # pragma: no cover


def seconds_between(a: datetime, b: datetime) -> int:
    first, last = (one.replace(tzinfo=BERLIN).astimezone(UTC) for one in (a, b))
    return int((last - first).total_seconds())


FIGURE = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def spoken_number(sentence: str) -> Fraction | None:
    """Return the last number of an answer: the result."""
    sentence = re.sub(r"(is|are|about) minus ", r"\1 -", sentence)
    power = re.search(r"(-?\d+(?:\.\d+)?) times 10 to the power of (minus )?(\d+)", sentence)
    if power:
        exponent = int(power[3]) * (-1 if power[2] else 1)
        return Fraction(power[1]) * Fraction(10) ** exponent
    found = FIGURE.findall(sentence.replace("minus ", "-"))
    return Fraction(found[-1].replace(",", "")) if found else None


def near(said: Fraction | None, true: Fraction, about: bool) -> bool:
    """Return True if a spoken number is the true one, rounded if the answer says `about`."""
    if said is None:
        return False
    return abs(said - true) <= max(abs(true) / 100, Fraction(1, 10**9)) if about else said == true


@dataclass
class Tally:
    """How the rules did on the cases."""

    counts: Counter[str]
    wrong: list[str]


def judge(cases: Iterator[Case]) -> Tally:
    """Ask the rules. The zone of this process must be Europe/Berlin."""
    from voxtui.skills.rules.understand import understand

    tally = Tally(Counter(), [])
    for case in cases:
        found = understand(case.sentence, case.now)
        verdict = _verdict(case, found)
        kind = case.expected[0] if isinstance(case.expected, tuple) else (
            "none" if case.expected is None else "sum")  # fmt: skip
        tally.counts[f"{kind} {verdict}"] += 1
        tally.counts[verdict] += 1
        if verdict == "wrong":
            tally.wrong.append(f"{case.now} {case.sentence!r} -> {found}, not {case.expected}")
    return tally


def _verdict(case: Case, found: object) -> str:
    from voxtui.skills.rules.intents import Do, Fact, NewReminder, Question, TimerRequest

    if found is None:
        return "silent" if case.expected is not None else "right"
    if case.expected is None:
        return "wrong"
    if isinstance(found, Question):
        return "silent"
    right = False
    match found, case.expected:
        case Fact("number", _, sentence), Fraction() as true:
            right = near(spoken_number(sentence), true, "about" in sentence)
        case Fact("unit", _, sentence), ("unit", Fraction() as true):
            right = near(spoken_number(sentence), true, "about" in sentence)
        case Fact("date", value), ("date", day):
            right = value == day
        case Fact("days", value, sentence), ("days", count):
            right = value == count and re.search(rf"\b{count} days?\b", sentence) is not None
        case Fact("seconds", value), ("seconds", count):
            right = value == count
        case Fact("time in", value), ("time in", there):
            right = value == there
        case TimerRequest(Do.START, _, seconds), ("start", length):
            right = float(seconds) == length
        case NewReminder(at), ("remind", moment):
            right = at.replace(tzinfo=BERLIN).astimezone(UTC) == moment
        case _:
            pass
    return "right" if right else "wrong"
