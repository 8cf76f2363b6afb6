// Command program is built by tests in several ways: it has functions that are called, one that is inlined
// everywhere, and packages of which it uses a part.
package main

import (
	"container/list"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

type pair[T any] struct{ a, b T }

//go:noinline
func (p *pair[T]) swap() { p.a, p.b = p.b, p.a }

func main() {
	l := list.New() // inlined, and Init in it
	l.PushBack(path.Base(os.Args[0]))
	p := pair[string]{a: l.Front().Value.(string)}
	p.swap()
	words := strings.Fields(p.b)
	slices.SortFunc(words, strings.Compare)
	println(semver.Compare(strings.Join(words, ""), "v1.0.0"))
}
