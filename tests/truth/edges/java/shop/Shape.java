package shop;

interface Shape {
    int area();
    default int twiceTheArea() { return 2 * area(); } //: Shape_twice = Main_area
}
