# For type checkers: ``ostraka.door`` is ``ostraka.core.door``.

from ostraka.core.door import Drawn as Drawn
from ostraka.core.door import confident as confident
from ostraka.core.door import consistently as consistently
from ostraka.core.door import interactive as interactive
from ostraka.core.door import release_each as release_each
