"""The one way in which files from outside are read: with limits, checked, and refused by an `InputError`.

Every function takes a `Fault`, which makes the error of a phrase that completes "FILE ...". No other module may call
`json.loads`, `numpy.load`, `yaml.load`, `tarfile.open` and the like: ruff's TID251 refuses it.
"""
