"""What the Python scripts share: how an error looks to the tests, and what the simulated model server saw."""

import json
import sys
import time
import urllib.request


def described(error):
    """An SDK's exception as the tests compare it."""
    body = getattr(error, "body", None)
    response = getattr(error, "response", None)
    return {
        "class": type(error).__name__,
        "kinds": [kind.__name__ for kind in type(error).__mro__],
        "status": getattr(error, "status_code", None),
        "code": getattr(error, "code", None),
        "type": getattr(error, "type", None),
        "param": getattr(error, "param", None),
        "message": str(error),
        "body": body if isinstance(body, (dict, str)) else None,
        "request_id": getattr(error, "request_id", None),
        "retry_after": response.headers.get("retry-after") if response is not None else None,
    }


def failure_of(call):
    """The exception that a call ends in; nothing but the result when it ends well, which the test then shows."""
    try:
        return {"ended_well": repr(call())}
    except Exception as error:
        return described(error)


def milliseconds_until_gone(sim_admin, request_id):
    """Waits until the model server has noticed that the client of a request is gone; this process goes on meanwhile."""
    began = time.monotonic()
    while time.monotonic() - began < 10:
        with urllib.request.urlopen(f"http://{sim_admin}/sim/requests") as answer:
            seen = json.load(answer)["requests"]
        mine = [request for request in seen if ["x-request-id", request_id] in request["headers"]]
        if mine and mine[-1]["outcome"] == "client_gone":
            return 1000 * (time.monotonic() - began)
        time.sleep(0.005)
    raise SystemExit(f"the model server still works on {request_id}: {mine}")


def main(scenarios):
    """Runs the scenario of the command line and prints what it saw."""
    print(json.dumps(scenarios[sys.argv[1]](*sys.argv[2:])))
