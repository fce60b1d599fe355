package main

import (
	"fmt"

	l "shop/list"
)

type Shape interface{ Area() int }
type Square struct{ side int }
type Circle struct{ Square }

func (s Square) Area() int   { return s.side * s.side } //: Square.Area
func (s *Square) Twice() int { return 2 * s.Area() }    //: Square.Twice = Square.Area
func (c Circle) Round() int  { return c.Area() }        //: Circle.Round = Square.Area

func helper(n int) int             { return n + 1 }                  //: helper
func twice(n int) int              { return helper(helper(n)) }      //: twice = helper
func apply(f func(int) int, n int) int { return f(n) }               //: apply = twice helper
func largest[T int | float64](a, b T) T { if a > b { return a }; return b } //: largest
func shadowed(helper func(int) int) int { return helper(1) }          //: shadowed = twice
func several() (int, error)        { return 1, nil }                 //: several
func init()                        { helper(0) }                     //: init = helper

func measure(s Shape) int { //: measure
	return s.Area() //= Square.Area
}

func main() { //: main
	square := Square{2}
	pointer := &Square{3}
	sum := square.Area() + pointer.Twice() //= Square.Area Square.Twice
	sum += measure(square) + measure(Circle{square}) //= measure
	sum += Circle{square}.Round() //= Circle.Round
	sum += apply(twice, 1) + apply(helper, 2) //= apply
	sum += shadowed(twice) //= shadowed
	sum += largest(1, 2) + largest[int](3, 4) //= largest
	n, _ := several() //= several
	sum += n + l.Length(nil) //= list.Length
	local := func(n int) int { return helper(n) } //: local = helper
	sum += local(1) //= local
	method := square.Area
	sum += method() //= Square.Area
	defer twice(1) //= twice
	go func() { helper(1) }() //: goroutine = helper goroutine
	helper := func(n int) int { return n } //: local_helper
	sum += helper(2) //= local_helper
	var shape Shape = square
	if s, ok := shape.(Square); ok {
		sum += s.Area() //= Square.Area
	}
	fmt.Println(sum, l.Length([]int{sum})) //= list.Length
}
