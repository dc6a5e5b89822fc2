# For type checkers: ``ostraka.ledger`` is ``ostraka.core.ledger``.

from ostraka.core.ledger import Budget as Budget
from ostraka.core.ledger import BudgetExceeded as BudgetExceeded
from ostraka.core.ledger import ChargeRequest as ChargeRequest
from ostraka.core.ledger import Ledger as Ledger
from ostraka.core.ledger import LedgerError as LedgerError
