# SPDX-License-Identifier: Apache-2.0
"""What TensorBoard itself finds in a folder of event files, as JSON: `read_events.py FOLDER`. Exit code 77: no TensorBoard."""

import io
import json
import math
import sys

try:
    from PIL import Image
    from tensorboard.backend.event_processing import event_accumulator
except ImportError as error:
    print(error)
    sys.exit(77)


def number(value):
    return value if math.isfinite(value) else str(value)


events = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={kind: 0 for kind in event_accumulator.DEFAULT_SIZE_GUIDANCE})
events.Reload()
tags = events.Tags()
found = {
    "scalars": {tag: [[e.step, number(e.value)] for e in events.Scalars(tag)] for tag in tags["scalars"]},
    "texts": {},
    "images": {},
    "histograms": {},
}
for tag in tags["tensors"]:
    for event in events.Tensors(tag):
        found["texts"][tag] = [event.step, event.tensor_proto.string_val[0].decode()]
    found["texts"][tag].append(events.SummaryMetadata(tag).plugin_data.plugin_name)
for tag in tags["images"]:
    for event in events.Images(tag):
        pixels = list(Image.open(io.BytesIO(event.encoded_image_string)).tobytes())
        found["images"][tag] = [event.step, event.width, event.height, pixels]
for tag in tags["histograms"]:
    for event in events.Histograms(tag):
        h = event.histogram_value
        found["histograms"][tag] = [event.step, h.min, h.max, h.num, h.sum, h.sum_squares, list(h.bucket_limit), list(h.bucket)]
print(json.dumps(found))
