"""The pages: traces to find, read and label; sessions; statistics. All that a browser loads is rendered or shipped here.

`routes` gives them to a server; what checks a token is `Guard`.
"""

from journeyman.dashboard.app import routes
from journeyman.dashboard.guard import COOKIE, Guard

__all__ = ["COOKIE", "Guard", "routes"]
