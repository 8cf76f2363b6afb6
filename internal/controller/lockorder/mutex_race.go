//go:build race

package lockorder

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// Mutex is a sync.Mutex with a place in the order, which is checked. The goroutine that locks it
// unlocks it too.
type Mutex[P Place] struct{ mu sync.Mutex }

var _ sync.Locker = (*Mutex[Placer])(nil)

// Lock locks the mutex. It panics when the goroutine holds a lock that does not come before it.
func (m *Mutex[P]) Lock() {
	var p P
	take(p)
	m.mu.Lock()
}

// Unlock unlocks the mutex.
func (m *Mutex[P]) Unlock() {
	var p P
	m.mu.Unlock()
	drop(p)
}

// held has the places of the locks that each goroutine holds, in the order in which it took them.
var held = struct {
	sync.Mutex
	by map[int64][]Place
}{by: map[int64][]Place{}}

func take(p Place) {
	id := goroutine()
	held.Lock()
	defer held.Unlock()
	for _, has := range held.by[id] {
		if has.place() >= p.place() {
			panic(fmt.Sprintf("lock order: %T is taken while %T is held", p, has))
		}
	}
	held.by[id] = append(held.by[id], p)
}

func drop(p Place) {
	id := goroutine()
	held.Lock()
	defer held.Unlock()
	list := held.by[id]
	i := slices.Index(list, p)
	if i < 0 {
		panic(fmt.Sprintf("lock order: %T is unlocked by a goroutine that does not hold it", p))
	}
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(held.by, id)
		return
	}
	held.by[id] = list
}

// goroutine returns the id of this goroutine, which the runtime shows in its stack only.
func goroutine() int64 {
	var buf [64]byte
	text := buf[:runtime.Stack(buf[:], false)]
	text, _, _ = bytes.Cut(bytes.TrimPrefix(text, []byte("goroutine ")), []byte(" "))
	id, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("lock order: %v", err))
	}
	return id
}
