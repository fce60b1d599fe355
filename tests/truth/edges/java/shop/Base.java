package shop;

class Base {
    Base() {} //: Base_new
    int shared() { return 1; } //: Base_shared
    int hook() { return 1; } //: Base_hook
    final int call() { return hook() + Base.made(); } //: Base_call = Main_hook Base_hook Base_made
    static int made() { return 1; } //: Base_made
}
