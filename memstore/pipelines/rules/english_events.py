"""What an English clause tells of: what happened, is planned or was decided."""

import re
from datetime import datetime

from memstore.pipelines.rules.candidates import (
    CHANGE,
    DEADLINE,
    DECISION,
    EVENT,
    Candidate,
)
from memstore.pipelines.rules.dates import repetitions, resolve
from memstore.pipelines.rules.english_happenings import happened, is_news
from memstore.pipelines.rules.english_words import (
    without_dates,
)

_NOUNS = (
    r"(?:\d{2}th|bday|housewarming|stag do|hen do|christening|baptism|biopsy|chemo|follow-up|tour|camp|meetup|hackathon|orientation|appointment|meeting|interview|exam|test|flight|train|wedding|surgery|operation|check-?up|party|conference|demo|presentation|deadline|launch|release|call|review|standup|stand-up|sync|retro(?:spective)?|trip|vacation|holiday|graduation|concert|game|match|race|marathon|"
    r"workshop|class|lecture|talk|hearing|move|moving day|lease|contract|rent|report|paper|thesis|defen[cs]e|proposal|assignment|homework|project|visa|passport|reservation|booking|dinner|lunch|birthday(?: party)?|anniversary|inspection|delivery|migration|cutover|go-live|beta|offsite|onsite|reunion|funeral|baby shower|ceremony|recital|play|show|festival|training|webinar|kick-?off|audit|closing|viewing|session|scan|mri|therapy|physical|haircut|date|election|due date|invoice|payment|tax(?:es| return)?|submission|draft|sprint|course)"
)
_VERBS = (
    r"(?:go(?:ing)?|com(?:e|ing)|fly(?:ing)?|travel(?:l?ing)?|driv(?:e|ing)|leav(?:e|ing)|meet(?:ing)?|visit(?:ing)?|attend(?:ing)?|start(?:ing)?|join(?:ing)?|mov(?:e|ing)|submit(?:ting)?|present(?:ing)?|giv(?:e|ing) a (?:talk|presentation|speech)|launch(?:ing)?|releas(?:e|ing)|ship(?:ping)?|deploy(?:ing)?|buy(?:ing)?|sell(?:ing)?|sign(?:ing)?|run(?:ning)? (?:a|the) \w+|tak(?:e|ing) (?:the|my|an?|our|\w+ (?:days|weeks) off)[^.;!?]{0,20}|"
    r"get(?:ting)? (?:married|engaged|divorced|surgery|my|a|the|our)[^.;!?]{0,20}|hav(?:e|ing) (?:a|an|my|our|the|dinner|lunch|surgery|another|two|three)[^.;!?]{0,40}|expect(?:ing)? (?:a|our|twins)|graduat(?:e|ing)|retir(?:e|ing)|hik(?:e|ing)|camp(?:ing)?|host(?:ing)?|interview(?:ing)?|pick(?:ing)? up|return(?:ing)?|renew(?:ing)?|fil(?:e|ing)|finish(?:ing)?|deliver(?:ing)?|migrat(?:e|ing)|switch(?:ing)?|book(?:ing)?|see(?:ing)? (?:a|the|my) (?:doctor|dentist|therapist|lawyer|movie|play|show)|speak(?:ing)? at|compet(?:e|ing)|defend(?:ing)?|celebrat(?:e|ing)|publish(?:ing)?|demo(?:ing)?|hand(?:ing)? in|turn(?:ing)? in|pay(?:ing)?|quit(?:ting)?|(?:be )?(?:in (?=(?-i:[A-Z]))|out of (?:the )?(?:office|town|country)|away|on (?:leave|vacation|holiday|a (?:business )?trip)))"
)
_PAST = (
    r"(?:got back|came back|arrived|went|flew|travel+ed|drove|left|met|visited|attended|started|joined|moved|submitted|presented|gave (?:a|the|my)|launched|released|shipped|deployed|bought|sold|signed|ran (?:a|the|my)|took (?:the|my|a)|got (?:married|engaged|divorced|promoted|fired|hired|laid off|accepted|rejected|surgery|the|my|a|an|our)|had (?:a|an|my|our|the|surgery|dinner with|lunch with)|graduated|"
    r"retired|hiked|camped|hosted|interviewed|picked up|returned|renewed|postponed|delayed|pushed|brought forward|moved up|filed|finished|completed|delivered|migrated|switched|booked|saw (?:a|the|my)|spoke (?:at|with|to)|won|lost|passed|failed|broke|quit|resigned|adopted|celebrated|published|paid|received|ordered|closed|merged|fixed|rolled back|defended|applied|enrolled|registered|crashed|was (?:born|hospitali[sz]ed|promoted|accepted|hired|laid off|diagnosed|admitted|awarded)|were (?:accepted|evacuated)|welcomed|gave birth|donated|cancel+ed|rescheduled|fell|sprained|injured|agreed|hired|rented|leased|proposed|ran)"
)
WE = r"(?:i|we|my (?:wife|husband|partner|family|team|boss|son|daughter|mom|mum|dad|brother|sister|parents|girlfriend|boyfriend|company|manager|friend \w+|cat|dog)(?: and i)?|our team|the team|our company|our family)"
_AHEAD = rf"(?:(?:i['’]m|we['’]re|i am|we are)\s(?:off|headed|heading|going back)\s(?:to|for|on)\s(?!bed\b|sleep\b|work\b)|{WE}(?:['’]m|['’]re| am| are| is)\s(?:scheduled|booked(?:\sin)?|due|down|registered|signed\sup)\sfor\s|{WE}(?:['’]m|['’]re|['’]s|['’]ll| am| are| is| will(?: be)?| plan to| plan on| planned to| have to| need to| must| has to| got to| have got to)\s(?:going to\s|gonna\s|planning to\s|scheduled to\s|due to\s|also\s|finally\s|now\s|be\s|about to\s|set to\s|traveling to\s|off to\s){{0,2}}{_VERBS}\b)"
_EVENT = re.compile(
    rf"^(?:{_AHEAD}|{WE}(?: have| has|['’]ve got| have got| got| booked| scheduled| arranged| planned| set up| signed up for| reserved| bought| ordered| registered for) (?:a |an |the |my |our |another |two |three |tickets |to )?[^.;!?]{{0,40}}?\b(?:{_NOUNS}|tickets|trip|room|flights?|meetings?|interviews?)s?\b"
    rf"|{WE} (?:just |finally |also |already |officially |successfully )*{_PAST}\b(?! (?:it|that) (?:wrong|again))|(?!(?:i|we|you|he|she|they|it)\b)(?:my|our|the|a|an|\w+ team['’]?s?)?\s?(?:[\w\-’']+ ){{0,4}}?{_NOUNS}s? (?:is|was|has been|got|will be|are|were|starts?|ends?|begins?|moved|takes place|expires?|['’]s)\b[^?]{{0,80}}|(?:my|our|the)\s(?:[\w\-’']+\s){{1,3}}?(?:goes? up|goes? down|go(?:es)? back to (?:school|work)|starts? school|comes? back|moves? (?:in|out)|flies|renews|launches|ships|goes live|opens|closes|leaves|departs|arrives|lands|expires|releases|ends|starts|begins)\b[^?]{{0,60}})",
    re.IGNORECASE,
)
_COMING = re.compile(
    r"^(?:the|our|my|a|an|some)\s(?!(?:users?|errors?|requests?|data|traffic|logs?|messages?|packets?|rain|storm|snow|weather|sun|results?|package manager)\b)(?:[\w'’-]+\s){1,4}?"
    r"(?:is|are|['’]s|will be|will|['’]ll be)\s(?:finally\s|also\s)?(?:coming|visiting|arriving|stopping by|dropping by|staying|moving in|come|visit|arrive|stop by|installing|delivering)\b(?! (?:from|back) the\b)[^?]{0,60}",
    re.IGNORECASE,
)
_SUFFERED = re.compile(
    r"^(?:(?:my|our)\s(?:[\w'’-]+\s){1,3}?(?:(?:got|was|were|has been|have been|is being|had)\s(?:just\s|badly\s)?(?:stolen|broken into|towed|robbed|flooded|damaged|hacked|totall?ed|lost|hit by|vandali[sz]ed|repossessed|burgled|destroyed"
    r"|delivered|repaired|approved|denied|published|cancell?ed|delayed|hospitali[sz]ed|admitted|discharged|laid off|diagnosed)|flooded|broke down|passed away|collapsed|caught fire|gave birth|died)\b"
    r"|(?:someone|somebody|a (?:thief|burglar|car|truck|driver|cyclist))\s(?:broke into|stole|hit|rear-ended|robbed|scratched|ran into)\s(?:my|our|me|us)\b)[^?]{0,60}",
    re.IGNORECASE,
)
_CANCELLED = r"(?:cancell?ed|called off|scrapped|postponed|pushed back|put on hold|backed out of|pulled out of|dropped out of|withdrew from|sold|returned)"
OFF = re.compile(
    rf"^(?:(?:i['’]m|we['’]re|i am|we are)\s(?:no longer\s(?!a\b|an\b)\w+ing|not\s(?:going|running|attending|moving|flying|travell?ing|driving|hosting|joining|coming|taking|getting|visiting|buying|selling|throwing|having|doing|applying|renewing|competing|performing|speaking))\b(?! (?:it|this|that|to (?:use|do|lie|say)|errors?)\b)[^?]{{0,60}}?\b(?:after all(?! (?:the|these|those|of|my))|any\s?more(?=$|[.,;!]|\s(?:because|since|as|this|due|after)\b))(?!\w)[^?]{{0,20}}"
    rf"|(?:i['’]m|we['’]re|i am|we are)\s(?:skipping|bailing\son|dropping\sout\sof|pulling\sout\sof|cancell?ing)\s(?:(?-i:[A-Z])\w+|(?:the|my|our)\s(?:[\w'’-]+\s){{0,3}}?{_NOUNS})\b[^?]{{0,30}}$"
    rf"|(?:i|we)\s(?:won['’]t be|will not be)\s\w+ing\b[^?]{{2,60}}?\bafter all"
    rf"|(?:the|my|our)\s(?!(?:request|build|job|task|process|script|download|upload|pipeline|thread)\b)(?:[\w'’-]+\s){{0,3}}?(?:{_NOUNS}|thing|plan|plans|tour|membership|subscription|order)\s(?:is|are|was|were|got|has been|have been)\s(?:now\s|just\s|all\s)?(?:off|{_CANCELLED}|not happening|on hold)(?:\s(?:indefinitely|again|now|because|due|until)[^?]{{0,40}})?$"
    rf"|(?:i|we)(?:['’]ve|\shave)?\s(?:just\s|already\s|finally\s|had\sto\s)*(?:{_CANCELLED}|cancel|call off|postpone)\s(?:the|my|our)\s(?!(?:request|build|job|task|process|script|download|upload|pipeline|value|function|order by)\b)(?:[\w'’-]+\s){{0,4}}?(?:{_NOUNS}|membership|subscription|order|plan|plans|car|house|flat|bike|tickets|gym)s?\b[^?]{{0,40}}$"
    rf"|(?:i|we)(?:['’]ve|\shave)?\s(?:just\s|already\s|finally\s)*(?:turned down|declined|rejected|accepted|signed|took|got)\s(?:the|an?|their|my)\s(?:[\w&.'’-]+\s){{0,3}}?(?:offer|job|position|role|invitation|proposal|promotion|scholarship|place at)\b[^?]{{0,40}}$)",
    re.IGNORECASE,
)
"""What will not be after all, and what was taken or turned down: it counts without a date."""
LET_GO = re.compile(
    r"(?:scrap|forget(?: about)?|cancel|ditch|drop|nix) (?:the|my|our|that) [\w' -]{2,40}$", re.IGNORECASE
)
_NOUN_ONLY = re.compile(rf"^(?!(?:i|we|you|he|she|they|it)\b)(?:(?:my|our|the|a|an)\s)?(?:[\w\-’'#]+\s){{0,4}}?{_NOUNS}s?(?:\s(?:with|at|for|in|to|of|about)\s[^.;!?]{{1,40}})?[\s:,]*$", re.IGNORECASE)  # fmt: skip
_DECIDED = re.compile(
    rf"^(?:{WE}|the board|management|everyone|the committee)(?:['’]ve|['’]re|['’]m| have| has| are| am)? (?:just |finally |already |all |both |officially |unanimously |ultimately |eventually )*(?:decided (?:to|on|against|not to|that|we)|agreed (?:to|on|that)|settled on|chose(?:n)?(?: to)?|picked|opted (?:for|to)|committed to|went with|going with|signed off on|voted (?:to|for))\s[^?]{{3,}}$",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"^(?:i|we)(?:['’]ve| have)? (?:just |finally |already |officially )*(?:bought|signed|passed(?=[^?]{0,40}(?:exam|test\b|course|class|interview|\bbar\b|boards?|probation|audit|N[1-5]|HSK|IELTS|TOEFL|考试|defen[cs]e|inspection|certification|\bcert\b|viva|quals))|got (?:married|engaged|promoted|hired|fired|laid off|accepted|the job|the offer|a (?:new|dog|cat|puppy|kitten|promotion|raise|job))|graduated|adopted|launched|shipped|submitted|quit my|resigned|retired|sold|closed on|won (?:the|a|first|second|our)|broke (?:my|a)|enrolled|published|booked|received an? (?:offer|award)|been (?:accepted|promoted|hired|laid off))\b[^?]{0,80}$",
    re.IGNORECASE,
)
_DUE = re.compile(r"\b(?:due|deadline|must be (?:in|submitted|done|finished)|expires?|need(?:s)? to (?:be )?(?:submit(?:ted)?|finish(?:ed)?|deliver(?:ed)?|hand(?:ed)? in|ship(?:ped)?|pay|paid|done)|have to (?:submit|finish|deliver|hand in|ship|pay))\b", re.IGNORECASE)  # fmt: skip
_TRIVIAL = re.compile(r"\b(?:see|do|try|get|make|fix|finish|finished|fixed|buy|start|started|visit|take|send|tried|did|saw) (?:it|them|that|this)\b|^(?:you|he|she|they|it|this|that|there|the (?:weather|movie|news|code|error|app|test|build|server|page)|please|can|could|help|let['’]s|schedule|book|set|add|create|move|cancel|remind|plan|draft|send|check|make|put|order|call(?! with)|fix|run|translate|summari[sz]e|explain|rewrite|generate|look|search|buy|reserve|list|write|tell|show|give|find|what|how|thanks|good|happy|see you|talk)\b|\b(?:went (?:badly|wrong|well)$|went to (?:bed|sleep)\b|had (?:a|the) (?:long|bad|good|great|rough|terrible|lovely|nice|hard|tough|awful|crazy|busy|fun|blast|headache|nightmare|dream|feeling|lot|hard time|great time|thought|idea|question)\b|\bstarted (?:crying|feeling|laughing|to feel|thinking|wondering)\b|\b(?:talk|chat|speak) (?:to|with) you\b|got (?:a|an|the) (?:chance|error|headache|feeling|bug|warning|message)|ran (?:the|a) (?:code|script|command|test|query|tests)|had (?:a|the) (?:same|similar|following) )", re.IGNORECASE)  # fmt: skip


def event(clause: str, at: datetime) -> Candidate | None:
    clause = _with_subject(clause)
    if OFF.match(clause) or _let_go(clause):
        return Candidate(clause, "episodic", CHANGE)
    if _TRIVIAL.search(clause):
        return None
    if _DECIDED.match(clause):
        return Candidate(clause, "episodic", DECISION)
    if not resolve(clause, at):
        done = _DONE.match(clause) or is_news(clause)
        return Candidate(clause, "episodic", EVENT) if done else None
    if repetitions(clause, at):
        return None
    rest = without_dates(clause, at)
    if not any(pattern.match(rest) for pattern in (_EVENT, _COMING, _SUFFERED, _NOUN_ONLY)) and not happened(
        rest
    ):
        return None
    return Candidate(clause, "episodic", DEADLINE if _DUE.search(clause) else EVENT)


_GOING = re.compile(
    r"(?:flying|heading (?:to|out|back)|travell?ing|moving (?:to|out|in|house)|visiting (?:my|our|the|(?-i:[A-Z]))|seeing (?:my|the (?:doctor|dentist)|a (?:doctor|dentist|lawyer|therapist))"
    r"|driving (?:to|up|down)|leaving (?:for|on|tomorrow)|getting (?:married|engaged|surgery)|having (?:surgery|dinner|lunch|a baby|guests))\b",
    re.IGNORECASE,
)
_DID = re.compile(
    r"(?:just\s|finally\s)?(?:got (?:promoted|married|engaged|divorced|fired|hired|laid off|accepted|rejected|a (?:new )?(?:job|raise|promotion|dog|cat|puppy|kitten|car|house)|an? (?:\w+ )?(?:offer|interview)|my|the (?:job|offer|keys))"
    r"|had (?:my|surgery|an? (?:interview|appointment|baby|operation))|signed (?:up for|the (?:lease|contract)|a (?:lease|contract))|bought (?:an?|my|our)|sold (?:my|our)|broke my|booked (?:an?|my|our|the)|adopted|quit my|passed my|accepted (?:an?|the) (?:\w+ )?(?:offer|job)"
    r"|turned down|enrolled|graduated|started (?:a new job|my new))\b",
    re.IGNORECASE,
)


def _with_subject(clause: str) -> str:
    """The clause with the subject that it leaves out: "flying to Oslo tomorrow", "just got promoted"."""
    if _GOING.match(clause):
        return f"I'm {clause}"
    return f"I {clause}" if _DID.match(clause) else clause


def _let_go(clause: str) -> bool:
    """What is let go, with the reason: "scrap the Iceland thing, we're not going after all"."""
    what, comma, reason = clause.partition(", ")
    return bool(comma and LET_GO.match(what) and OFF.match(reason))
