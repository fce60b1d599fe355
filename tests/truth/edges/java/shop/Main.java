package shop;

import java.util.List;
import java.util.function.IntUnaryOperator;
import static shop.Lists.length;

public class Main extends Base implements Shape {
    private final int side;
    Main(int side) { super(); this.side = side; } //: Main_new = Base_new
    Main() { this(1); } //: Main_none = Main_new
    @Override public int area() { return side * side; } //: Main_area
    static int helper(int n) { return n + 1; } //: helper_int
    static int helper(String s) { return s.length(); } //: helper_string
    static int twice(int n) { return helper(helper(n)); } //: twice = helper_int
    private int own() { return this.area() + area() + shared(); } //: own = Main_area Base_shared
    static int apply(IntUnaryOperator f, int n) { return f.applyAsInt(n); } //: apply = twice
    class Inner { int run() { return own(); } } //: Inner_run = own
    static class Nested { static int run() { return twice(1); } } //: Nested_run = twice
    @Override int hook() { return 2; } //: Main_hook
    static int recursive(int n) { return n == 0 ? 0 : recursive(n - 1); } //: recursive = recursive
    public static void main(String[] arguments) { //: main
        Main main = new Main(); //= Main_none
        int sum = main.area() + main.own(); //= Main_area own
        Shape shape = main;
        sum += shape.area() + shape.twiceTheArea(); //= Main_area Shape_twice
        sum += helper(1); //= helper_int
        sum += helper("a"); //= helper_string
        sum += Main.twice(2) + Nested.run(); //= twice Nested_run
        sum += main.new Inner().run(); //= Inner_run
        sum += apply(Main::twice, 1); //= apply
        sum += apply(n -> helper(n), 1); //= apply helper_int
        sum += Lists.length(List.of()) + length(List.of(1)); //= Lists_length
        sum += new Base() { @Override int hook() { return 3; } }.call(); //= Base_new Base_call
        Base base = main;
        sum += base.call() + base.shared() + recursive(2); //= Base_call Base_shared recursive
        System.out.println(sum);
    }
}
