// Functions of many shapes, each with a mark that counts its calls. What stands behind `//=` is what has to come of a
// function that no call of its own is seen of.
package main

import (
	"fmt"
	"sort"
	"sync"
)

var (
	lock  sync.Mutex
	marks = map[string]int{}
)

//go:noinline
func hit(name string) {
	lock.Lock()
	defer lock.Unlock()
	marks[name]++
}

type price interface{ cost() int }
type item struct{ n int }
type book struct{ item }
type list[T any] struct{ all []T }

//go:noinline
func (it item) cost() int { hit("item.cost"); return it.n }

//go:noinline
func (it *item) add(n int) { hit("item.add"); it.n += n }

//go:noinline
func (it *item) never() int { hit("item.never"); return it.n } //= never-ran

func unused() int { hit("unused"); return 1 } //= not-in-build no-code

//go:noinline
func (b *book) pages() int { hit("book.pages"); return b.cost() }

//go:noinline
func (l *list[T]) push(it T) { hit("list.push"); l.all = append(l.all, it) }

//go:noinline
func twice[T int | float64](n T) T { hit("twice"); return n + n }

//go:noinline
func recursive(n int) int { hit("recursive"); if n < 2 { return 1 }; return recursive(n-1) + recursive(n-2) }

//go:noinline
func apply(f func(int) int, n int) int { hit("apply"); return f(n) }

//go:noinline
func several(names ...string) (n int, err error) { hit("several"); return len(names), nil }

//go:noinline
func panics() { hit("panics"); panic("x") }

//go:noinline
func recovers() (n int) { hit("recovers")
	defer func() { hit("recovers.deferred"); recover(); n = 1 }()
	panics()
	return 0
}

func init() { hit("init") }

func main() { hit("main")
	it := item{1}
	it.add(2)
	b := &book{it}
	prices := []price{it, b}
	sum := b.pages()
	for _, p := range prices {
		sum += p.cost()
	}
	var l list[string]
	l.push("a")
	m := list[int]{}
	m.push(1)
	sum += twice(1) + int(twice(1.5)) + recursive(5) + recovers()
	base := sum
	sum += apply(func(n int) int { hit("closure"); return n + base }, 1)
	sum += apply(func(n int) int { hit("closure.other"); return n - base }, 1)
	method := it.add
	method(1)
	n, _ := several("a", "b")
	numbers := []int{3, 1, 2}
	sort.Slice(numbers, func(a, b int) bool { return numbers[a] < numbers[b] }) //= -
	var wait sync.WaitGroup
	for at := 0; at < 4; at++ {
		wait.Add(1)
		go func() { hit("goroutine"); wait.Done() }()
	}
	wait.Wait()
	if sum > 1000000 {
		sum += it.never()
	}
	lock.Lock()
	defer lock.Unlock()
	for name, calls := range marks {
		fmt.Println(name, calls)
	}
	if sum+n == 0 {
		panic("nothing")
	}
}
