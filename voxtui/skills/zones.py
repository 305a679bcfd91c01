"""The time in other places, from the zone data of this machine."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError, available_timezones

_CITIES = {
    "America/Los_Angeles": "san francisco|seattle|las vegas|san diego|california|pacific",
    "America/New_York": "new york city|washington dc|boston|miami|philadelphia|atlanta|eastern",
    "America/Chicago": "houston|dallas|austin|new orleans|central",
    "America/Denver": "salt lake city|mountain",
    "America/Anchorage": "alaska",
    "Pacific/Honolulu": "hawaii",
    "America/Sao_Paulo": "rio|rio de janeiro|brasilia",
    "America/Toronto": "ottawa|montreal",
    "Europe/Berlin": "munich|hamburg|cologne|frankfurt|stuttgart|leipzig",
    "Europe/London": "england|scotland|manchester|edinburgh|glasgow",
    "Europe/Madrid": "barcelona|seville|valencia",
    "Europe/Rome": "milan|naples|venice|florence|turin",
    "Europe/Zurich": "geneva|bern|basel",
    "Europe/Istanbul": "ankara",
    "Europe/Kyiv": "kiev",
    "Asia/Shanghai": "china|beijing|guangzhou|shenzhen",
    "Asia/Kolkata": "delhi|new delhi|mumbai|bangalore|chennai",
    "Asia/Tokyo": "osaka|kyoto",
    "Asia/Dubai": "abu dhabi",
    "Africa/Johannesburg": "cape town|durban",
    "Pacific/Auckland": "wellington",
    "Australia/Sydney": "canberra",
    "UTC": "utc|gmt|greenwich",
}
"""Cities and zones that the data does not name, and which have one meaning for most people."""

_UNCERTAIN = ("georgia", "center", "east", "general", "north", "south", "west")

_ZONE = re.compile(r"^the |(?: standard| daylight)? time ?zone$| (?:standard )?time$|^time zone ")


def time_in(place: str, now: datetime) -> datetime | None:
    """Return the local time of a city or country at `now` (aware); None if it is not certain.

    The zone data takes some 20 ms to list, once.
    """
    low = _ZONE.sub("", place.lower()).strip()
    low = re.sub(r"^the |(?: standard| daylight)$", "", low)
    try:
        times = [now.astimezone(ZoneInfo(name)) for name in _zones().get(low, ())]
    except (OverflowError, ValueError, ZoneInfoNotFoundError):
        return None
    if not times or any(one.utcoffset() != times[0].utcoffset() for one in times):
        return None  # a country with several times
    if "standard" in place.lower() and times[0].dst():
        return None  # it is summer there
    return times[0].replace(tzinfo=None)


@cache
def _zones() -> dict[str, tuple[str, ...]]:
    names = sorted(name for name in available_timezones() if "/" in name and name[:3] != "Etc")
    zones: dict[str, tuple[str, ...]] = {
        name.rpartition("/")[2].replace("_", " ").lower(): (name,) for name in names
    }
    countries: dict[str, list[str]] = {}
    for line in _lines("zone.tab"):
        code, _, zone = line.split("\t")[:3]
        countries.setdefault(code, []).append(zone)
    for line in _lines("iso3166.tab"):
        code, _, country = line.partition("\t")
        plain = re.sub(r" \(.*", "", country).lower()
        if code in countries:
            zones.setdefault(plain, tuple(countries[code]))
    for name in _UNCERTAIN:
        zones.pop(name, None)
    for zone, cities in _CITIES.items():
        zones.update(dict.fromkeys(cities.split("|"), (zone,)))
    return zones


def _lines(name: str) -> list[str]:
    for folder in TZPATH:
        try:
            lines = (Path(folder) / name).read_text().splitlines()
        except OSError:
            continue
        return [line for line in lines if line and not line.startswith("#")]
    return []
