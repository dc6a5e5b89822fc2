"""Students as ONNX, where skl2onnx can: the same predictions, without Python."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from ostraka.students import AugmentedSVM

skl2onnx = pytest.importorskip("skl2onnx", reason="pip install skl2onnx onnxruntime")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install skl2onnx onnxruntime")


@pytest.mark.filterwarnings("ignore")
def test_a_student_of_images_says_the_same_as_onnx():
    X, y = load_digits(return_X_y=True)
    student = AugmentedSVM(image_shape=(8, 8)).fit(X[:350], y[:350])
    kind = skl2onnx.common.data_types.FloatTensorType([None, 64])
    model = skl2onnx.to_onnx(
        student.model_, initial_types=[("X", kind)], options={"zipmap": False}, target_opset=17
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    labels = session.run(None, {"X": X[350:].astype(np.float32)})[0]
    assert (labels == student.predict(X[350:])).all()
