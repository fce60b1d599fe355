// Functions of many shapes, each with a mark that counts its calls. What stands behind `//=` is what has to come of a
// function that no call of its own is seen of.
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>

#define NI __attribute__((noinline, noclone, noipa))

static struct { const char *name; unsigned long calls; } marks[128];
NI void hit(const char *name) {
    int at = 0;
    while (marks[at].name && std::strcmp(marks[at].name, name)) at++;
    marks[at].name = name;
    marks[at].calls++;
}

namespace shop {
NI int total(int n) { hit("total(int)"); return n; }
NI double total(double n) { hit("total(double)"); return n; }
template <typename T> NI T twice(T n) { hit("twice"); return n + n; }
namespace { NI int hidden(int n) { hit("hidden"); return n; } }
struct Item {
    int cost;
    NI explicit Item(int cost) : cost(cost) { hit("Item.Item"); }
    NI Item(const Item &from) : cost(from.cost) { hit("Item.copy"); } //= not-in-build no-code
    NI ~Item() { hit("Item.~Item"); }
    NI virtual int price() const { hit("Item.price"); return cost; }
    NI static Item made() { hit("Item.made"); return Item(2); }
    NI Item &operator+=(int n) { hit("Item.+="); cost += n; return *this; }
    int put_in() const { hit("Item.put_in"); return cost; } //= not-visible inlined
    NI virtual int never() const { hit("Item.never"); return 0; } //= never-ran
    int unused() const { hit("Item.unused"); return 0; } //= not-in-build no-code
    NI int apart() const;
};
NI int Item::apart() const { hit("Item.apart"); return cost; }
struct Book : Item {
    NI Book() : Item(5) { hit("Book.Book"); }
    NI int price() const override { hit("Book.price"); return Item::price() + 1; }
};
template <typename T> struct Box {
    T value;
    NI T get() const { hit("Box.get"); return value; }
    template <typename U> NI U as() const { hit("Box.as"); return U(value); }
};
NI int operator*(const Item &a, const Item &b) { hit("*"); return a.cost * b.cost; }
NI int throws(int n) { hit("throws"); if (n) throw std::runtime_error("x"); return n; }
NI int catches(int n) { hit("catches");
    try { return throws(n); } catch (const std::exception &) { return 1; }
}
NI constexpr int fixed(int n) { if (n > 9) hit("fixed"); return n; }
}

namespace lambdas {
static const auto kept = [](int n) NI { hit("lambda.kept"); return n; };
struct Holder {
    int base = 2;
    std::function<int(int)> initial = [this](int n) { hit("lambda.initial"); return n + base; }; //= not-visible inlined
    NI int own(int n) { hit("Holder.own");
        auto added = [this](int m) NI { hit("lambda.this"); return m + base; };
        return added(n);
    }
};
struct Less { NI bool operator()(int a, int b) const { hit("Less.()"); return a < b; } };
template <typename T> NI T within(T n) { hit("within");
    auto inner = [](T m) NI { hit("lambda.within"); return m; };
    return inner(n) + inner(n);
}
NI int apply(int (*call)(int), int n) { hit("apply"); return call(n); }
NI int wraps(int n) { hit("wraps"); return [](int m) NI { hit("wraps"); return m; }(n); }
NI int all(int count) { hit("all");
    int seen = 0;
    auto plain = [](int n) NI { hit("lambda.plain"); return n; };
    auto counts = [&seen](int n) NI { hit("lambda.capturing"); seen += n; };
    auto any = [](auto n) NI { hit("lambda.generic"); return n; };
    auto outer = [](int n) NI { hit("lambda.outer");
        auto inner = [n](int m) NI { hit("lambda.inner"); return n + m; };
        return inner(1) + inner(2);
    };
    auto grows = [seen]() mutable NI -> int { hit("lambda.mutable"); return ++seen; };
    auto broad = [count] //: lambda.broad
        (int n,
         int m)
        NI {
        hit("lambda.broad"); return n + m + count;
    };
    auto twice = [](int n) NI { hit("lambda.twice"); return n; }(1) + [](int n) NI { hit("lambda.twice"); return -n; }(2);
    auto late = [](int n) NI { hit("lambda.late"); return n; }; //= never-ran
    auto unused = [](int n) { hit("lambda.unused"); return n; }; //= not-in-build no-code
    auto small = [](int n) { hit("lambda.small"); return n; }; //= not-visible inlined
    auto tiny = [](int n) { hit("lambda.tiny"); return n; }; //= not-visible inlined
    counts(2);
    if (count > 9) seen += late(1);
    seen += plain(1) + apply(plain, 2) + any(1) + int(any(1.5)) + outer(1) + grows() + broad(1, 2) + twice + small(1) + tiny(2);
    return seen + kept(1) + within(1) + int(within(1.5)) + Holder().own(1) + Holder().initial(1) + Less()(1, 2) + wraps(1);
}
}

NI static int run(int count) { hit("run");
    using namespace shop;
    int sum = total(1) + int(total(1.5)) + twice(1) + int(twice(1.5)) + hidden(1) + catches(1) + fixed(count + 10);
    Item item = Item::made();
    item += 1;
    Book book;
    Item &as_item = book;
    sum += as_item.price() + item.put_in() + item.apart() + item * book;
    sum += Box<int>{1}.get() + int(Box<long>{2}.get()) + Box<int>{3}.as<short>();
    sum += lambdas::all(count);
    if (count > 9) sum += item.never();
    return sum;
}

int main(int count, char **) { hit("main");
    int sum = run(count);
    for (int at = 0; marks[at].name; at++) std::printf("%s %lu\n", marks[at].name, marks[at].calls);
    return sum == 0;
}
