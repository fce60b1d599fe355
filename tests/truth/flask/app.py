"""An application of Flask that asks itself through its test client."""

import functools

from flask import Blueprint, Flask, abort, g, jsonify, request, session

app = Flask(__name__)
app.secret_key = "not secret"
shop = Blueprint("shop", __name__, url_prefix="/shop")


class Store:
    """What is sold."""

    def __init__(self):
        self._items = {}

    def add(self, name, price):
        self._items[name] = price
        return self

    @property
    def total(self):
        return sum(map(lambda price: price, self._items.values()))

    def __contains__(self, name):
        return name in self._items


store = Store()


def signed_in(view):
    @functools.wraps(view)
    def wrapper(*arguments, **keywords):
        if "name" not in session:
            abort(401)
        return view(*arguments, **keywords)

    return wrapper


@app.before_request
def start():
    g.started = True


@app.after_request
def mark(response):
    response.headers["X-Started"] = str(g.started)
    return response


@app.context_processor
def constants():
    return {"rate": 2}


@app.template_filter("twice")
def twice(text):
    return text * 2


@app.errorhandler(404)
def missing(error):
    return jsonify(error=error.name), 404


@app.route("/in/<name>")
def sign_in(name):
    session["name"] = name
    return "hello"


@shop.route("/add/<name>/<int:price>", methods=["POST"])
@signed_in
def add(name, price):
    return jsonify(total=store.add(name, price).total, known=name in store)


@shop.route("/list")
@signed_in
def listed():
    return app.jinja_env.from_string("{{ 'a' | twice }}").render(q=request.args.get("q"))


@app.cli.command("never")
def never():
    """Not called."""


app.register_blueprint(shop)


def main():
    client = app.test_client()
    ask = lambda path: client.get(path).status_code  # noqa: E731
    codes = [ask("/shop/list"), ask("/in/a"), ask("/shop/list?q=1"), ask("/nothing")]
    codes.append(client.post("/shop/add/pen/3").get_json()["total"])
    print(codes)


if __name__ == "__main__":
    main()
