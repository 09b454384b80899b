"""A campaign of damage: files of runs are damaged at random, and commands must refuse them in one sentence.

`python -m walkback.campaign --minutes N --seed S` runs one; the same seed does the same damage in the same order.
"""
