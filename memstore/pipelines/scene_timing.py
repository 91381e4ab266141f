"""When the scenes of an agent are due: some seconds after an extraction, and neither too often nor too seldom a session.

Nothing is counted up and no timer is kept: when a session is due follows from two cursors, that of its extraction and
that of its last scene run. Scenes belong to the agent, so the first session that is due is when all of them are written.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from memstore.agent_settings import AgentSettings
from memstore.pipelines.work import SECOND
from memstore.storage.pipeline_rows import SessionTiming


@dataclass(frozen=True, slots=True)
class Waiting:
    """A session with an extraction that no scene run has covered.

    :param due: when its scenes are to be written. :param active: whether somebody spoke in it lately.
    """

    timing: SessionTiming
    due: int
    active: bool


def elapsed(then: int, now: int) -> int | None:
    """None where a clock was set back in between: it is long ago then, and nothing waits for it."""
    return now - then if now >= then else None


def due_after(extracted_at: int, last_run: int | None, settings: AgentSettings, now: int) -> int:
    """When scenes are due after an extraction. Each further extraction moves it on, up to the longest interval."""
    due = now
    if elapsed(extracted_at, now) is not None:
        due = extracted_at + round(settings.scene_delay_s * SECOND)
    if last_run is None or elapsed(last_run, now) is None:
        return due
    least = last_run + round(settings.scene_min_interval_s * SECOND)
    most = last_run + round(settings.scene_max_interval_s * SECOND)
    return min(max(due, least), max(most, now))


def waiting_sessions(timings: Iterable[SessionTiming], settings: AgentSettings, now: int) -> list[Waiting]:
    """Those of the sessions that wait for a scene run."""
    return [
        Waiting(one, due_after(_extracted_at(one), one.ran_at, settings, now), _is_active(one, settings, now))
        for one in timings
        if one.extractions > one.covered
    ]


def next_due(timing: SessionTiming, settings: AgentSettings, now: int) -> int | None:
    """When memories that no run has looked at are due by this session, however they came; None: not by this one."""
    if not _is_active(timing, settings, now):
        return None
    if timing.extractions > timing.covered:
        return due_after(_extracted_at(timing), timing.ran_at, settings, now)
    if timing.ran_at is None:
        return None
    since = elapsed(timing.ran_at, now)
    longest = round(settings.scene_max_interval_s * SECOND)
    return now if since is None or since >= longest else None


def _extracted_at(timing: SessionTiming) -> int:
    return timing.extracted_at or 0


def _is_active(timing: SessionTiming, settings: AgentSettings, now: int) -> bool:
    if timing.last_recorded_at is None:
        return False
    quiet = elapsed(timing.last_recorded_at, now)
    return quiet is None or quiet <= round(settings.scene_active_s * SECOND)
