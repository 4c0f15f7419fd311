"""What everything stands on: errors, files, this computer, facts about QNN, progress.

Its face is `__init__.pyi`: each name is loaded when it is used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
