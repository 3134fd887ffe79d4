"""The pages: traces to find, read and label; sessions; statistics. All that a browser loads is rendered or shipped here.

`routes` gives them to a server; what checks a token is `Guard`.
"""

from journeyman.serving.dashboard.app import routes
from journeyman.serving.dashboard.layout import COOKIE, Guard

__all__ = ["COOKIE", "Guard", "routes"]
