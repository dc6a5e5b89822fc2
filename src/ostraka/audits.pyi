# For type checkers: ``ostraka.audits`` is ``ostraka.audit``.

from ostraka.audit import NeighbourWorlds as NeighbourWorlds
from ostraka.audit import TeacherWorlds as TeacherWorlds
from ostraka.audit import audit_adversary as audit_adversary
from ostraka.audit import audit_answers as audit_answers
from ostraka.audit import audit_canaries as audit_canaries
from ostraka.audit import audit_counts as audit_counts
from ostraka.audit import audit_library as audit_library
from ostraka.audit import audit_mechanism as audit_mechanism
from ostraka.audit import audit_run as audit_run
from ostraka.audit import audit_until as audit_until
from ostraka.audit import delta_lower_bound as delta_lower_bound
from ostraka.audit import epsilon_lower_bound as epsilon_lower_bound
from ostraka.audit import hold_out as hold_out
from ostraka.audit import one_run_lower_bound as one_run_lower_bound
from ostraka.audit import renyi_lower_bound as renyi_lower_bound
from ostraka.audit import retrained_votes as retrained_votes
from ostraka.audit import votes_lower_bound as votes_lower_bound
