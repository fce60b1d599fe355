"""A small shop on Django, and its requests: pages, JSON, forms, a database.

The requests are made in the process itself, and what is printed depends on every answer.
"""

import hashlib
import sys

import django
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["testserver"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a program that nobody reaches",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    USE_TZ=True,
)
django.setup()

from django import forms
from django.db import connection, models
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.template import engines
from django.test import Client
from django.urls import path, reverse

PAGE = engines["django"].from_string(
    "<h1>{{ title|title }}</h1><p>{{ items|length }} item{{ items|length|pluralize }}"
    "{% for item in items %}<li class='{% cycle 'odd' 'even' %}'>"
    "<a href='{% url 'item' item.pk %}'>{{ item.name|capfirst }}</a> "
    "{{ item.price|floatformat:2 }}{% if item.price > 50 %} dear{% endif %}</li>"
    "{% empty %}nothing{% endfor %}"
)


class Item(models.Model):
    """What is sold."""

    name = models.CharField(max_length=40)
    price = models.DecimalField(max_digits=8, decimal_places=2)

    class Meta:
        app_label = "shop"


class ItemForm(forms.ModelForm):
    """What is sent to have an item sold."""

    class Meta:
        model = Item
        fields = ("name", "price")


def show_all(request):
    """Lists what costs at least as much as was asked for."""
    least = request.GET.get("least", "0")
    items = Item.objects.filter(price__gte=least).order_by("-price", "name")[:30]
    return HttpResponse(PAGE.render({"title": "what we sell", "items": items}, request))


def show(request, pk):
    """Tells of one item."""
    item = get_object_or_404(Item, pk=pk)
    dearer = Item.objects.filter(price__gt=item.price).count()
    answer = {"name": item.name, "price": item.price, "dearer": dearer}
    return JsonResponse(answer)


def add(request):
    """Adds an item, or says what is wrong with it."""
    form = ItemForm(request.POST)
    if not form.is_valid():
        return JsonResponse(form.errors, status=400)
    return redirect("item", pk=form.save().pk)


urlpatterns = [
    path("", show_all, name="all"),
    path("item/<int:pk>/", show, name="item"),
    path("add/", add, name="add"),
]


def main(turns):
    """Makes the requests of so many turns."""
    with connection.schema_editor() as editor:
        editor.create_model(Item)
    client = Client()
    digest = hashlib.sha256()
    codes = {}
    for turn in range(turns):
        price = f"{turn * 37 % 100}.{turn % 10}0" if turn % 9 else "much"
        answers = [
            client.post(reverse("add"), {"name": f"item {turn}", "price": price}),
            client.get(reverse("item", args=[turn // 2])),
            client.get(reverse("all"), {"least": turn % 60}),
        ]
        for answer in answers:
            digest.update(answer.content)
            codes[answer.status_code] = codes.get(answer.status_code, 0) + 1
    print(sorted(codes.items()), digest.hexdigest())


if __name__ == "__main__":
    main(int(sys.argv[1]))
