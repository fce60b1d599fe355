#include <functional>
#include <string>
#include <vector>
namespace shop {
int price(int n) { return n; } //: price_int
int price(const std::string &s) { return (int)s.size(); } //: price_string
namespace deep { int price(double) { return 3; } } //: deep_price
struct Shape { //
    virtual int area() const { return 0; } //: Shape_area
    int twice() const { return 2 * area(); } //: Shape_twice = Square_area Shape_area
    static int made() { return 1; } //: Shape_made
    virtual ~Shape() = default;
};
struct Square : Shape {
    explicit Square(int side) : side(side) { check(); } //: Square_new = Square_check
    int area() const override { return side * side; } //: Square_area
    void check() const {} //: Square_check
    int operator()(int n) const { return n + side; } //: Square_call
    Square operator+(const Square &o) const { return Square(side + o.side); } //: Square_plus = Square_new
    int side;
};
template <typename T> T largest(T a, T b) { return a < b ? b : a; } //: largest
template <typename T> struct Box { //
    T value;
    T get() const { return value; } //: Box_get
    T both() const { return get() + get(); } //: Box_both = Box_get
};
} // namespace shop
static int hidden(int n) { return n; } //: hidden
using namespace shop;
static int shadowed(std::function<int(int)> hidden) { return hidden(1); } //: shadowed = lambda_of_main
int main() { //: main
    Square square(2); //= Square_new
    const Shape &shape = square;
    int sum = shape.area() + shape.twice(); //= Square_area Shape_twice
    sum += square.area(); //= Square_area
    sum += shop::price(1); //= price_int
    sum += price(std::string("a")); //= price_string
    sum += shop::deep::price(1.0); //= deep_price
    sum += Shape::made() + square.made(); //= Shape_made
    sum += largest(1, 2) + largest<int>(3, 4); //= largest
    sum += Box<int>{1}.get(); //= Box_get
    Box<int> box{2};
    sum += box.both(); //= Box_both
    auto twice = [](int n) { return hidden(n) * 2; }; //: lambda_of_main = hidden
    sum += twice(1); //= lambda_of_main
    sum += shadowed(twice); //= shadowed
    sum += square(3) + (square + square).side; //= Square_call Square_plus
    std::vector<int> numbers{1, 2};
    for (int n : numbers) sum += hidden(n); //= hidden
    return [&] { return hidden(sum); }() > 0 ? 0 : 1; //: lambda_of_return = hidden lambda_of_return
}
