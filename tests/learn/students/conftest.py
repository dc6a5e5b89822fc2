"""Which of scikit-learn's checks every run makes of a student: ``make slow`` makes all of them."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

FEW = {
    "check_dict_unchanged",
    "check_estimator_cloneable",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_fit_idempotent",
    "check_n_features_in",
    "check_supervised_y_2d",
}


def checks_of_scikit_learn(*estimators, **options):
    """Parametrise a test with them: ``test(estimator, check)``."""
    every = parametrize_with_checks(list(estimators), **options)
    names, cases = every.args
    marked = []
    for case in cases:
        (estimator, check), marks = getattr(case, "values", case), [*getattr(case, "marks", ())]
        slow = [] if check.func.__name__ in FEW else [pytest.mark.slow]
        marked.append(pytest.param(estimator, check, marks=[*marks, *slow]))
    return pytest.mark.parametrize(names, marked, **every.kwargs)
