# For type checkers: ``ostraka.pate`` is ``ostraka.learn``.

from ostraka.learn import PATEFM as PATEFM
from ostraka.learn import LabelClassifier as LabelClassifier
from ostraka.learn import PATEClassifier as PATEClassifier
from ostraka.learn import PATERegressor as PATERegressor
