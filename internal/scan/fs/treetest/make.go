package treetest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maker fills a directory. It keeps the first error.
type maker struct {
	top string
	n   int // entries so far
	// scale is the factor by which the largest files exceed those of the smallest tree.
	scale int64
	r     *rand.Rand
	fill  *rand.ChaCha8
	err   error
}

// Least is the minimum number of entries of a tree.
const Least = 1500

// Make fills a directory with so many entries: files of all sizes, sparse ones, a heavily
// fragmented one, deep and large directories, hard and symbolic links, odd names.
func Make(dir string, entries int) error {
	if entries < Least {
		return fmt.Errorf("a tree has at least %d entries", Least)
	}
	m := &maker{top: dir, scale: 1, r: rand.New(rand.NewPCG(1, 2)), fill: rand.NewChaCha8([32]byte{7})}
	if entries >= 2*Least {
		m.scale = 5
	}
	m.names()
	m.links()
	m.sizes()
	m.sparse()
	m.deep()
	m.crowd(600)
	m.rest(entries)
	return m.err
}

func (m *maker) do(err error) {
	m.n++
	if m.err == nil {
		m.err = err
	}
}

func (m *maker) path(name string) string { return filepath.Join(m.top, name) }

func (m *maker) mkdir(name string) { m.do(os.Mkdir(m.path(name), 0o755)) }

func (m *maker) file(name string, b []byte) { m.do(os.WriteFile(m.path(name), b, 0o644)) }

func (m *maker) bytes(n int) []byte {
	b := make([]byte, n)
	_, _ = m.fill.Read(b)
	return b
}

// names creates files with names that are difficult for readers.
func (m *maker) names() {
	m.mkdir("names")
	for i, name := range []string{
		" ", "a b", "-rf", "...", "..a", "a.", "line\nfeed", "tab\there", "back\\slash", "quote\"'`", "$HOME", "*?[",
		"%s%n",
		"caf\u00e9", "cafe\u0301", "\u65e5\u672c\u8a9e", "\U0001f980", "\u202eright", "CASE", "case", "latin-\xe9",
		"\xff\xfe",
		strings.Repeat("n", 255), strings.Repeat("\u00e9", 127), ".hidden", "trailing ", "a:b", "a|b", "\x01",
	} {
		m.file("names/"+name, []byte(fmt.Sprint(i)))
	}
}

func (m *maker) links() {
	m.mkdir("links")
	m.mkdir("links/far")
	m.file("links/target", []byte("target\n"))
	link := func(target, name string) { m.do(os.Symlink(target, m.path("links/"+name))) }
	link("target", "short")
	link("../links/target", "up")
	link("/links/target", "absolute")
	link("../../../../../links/target", "above")
	link("nowhere", "dangling")
	link("loop2", "loop1")
	link("loop1", "loop2")
	link(".", "self")
	link("far", "folder")
	for _, n := range []int{58, 59, 60, 61, 120, 500, 1000} {
		link(strings.Repeat("./", n/2)[:n-n%2-1]+strings.Repeat("/", 1+n%2)+"x", fmt.Sprintf("length%d", n))
	}
	for i := range 40 {
		first := fmt.Sprintf("links/hard%d", i)
		m.file(first, m.bytes(m.r.IntN(9000)))
		for k := range 1 + i%4 {
			m.do(os.Link(m.path(first), m.path(fmt.Sprintf("links/far/hard%d-%d", i, k))))
		}
	}
	err := syscall.Mkfifo(m.path("links/fifo"), 0o600)
	if errors.Is(err, fs.ErrPermission) {
		err = os.WriteFile(m.path("links/fifo"), nil, 0o600)
	}
	m.do(err)
}

// sizes creates files with sizes around the limits of blocks and of inodes.
func (m *maker) sizes() {
	m.mkdir("sizes")
	for n := range 200 {
		m.file(fmt.Sprintf("sizes/%d", n), m.bytes(n))
	}
	for _, n := range []int{511, 512, 1023, 1024, 1025, 4095, 4096, 4097, 12 << 10, 12<<10 + 1, 48 << 10, 48<<10 +
		1, 65535, 65536, 65537, 268<<10 + 5, 1<<20 - 1, int(m.scale)*5<<20 + 77} {
		m.file(fmt.Sprintf("sizes/%d", n), m.bytes(n))
	}
}

// sparse creates files with holes: at the beginning, at the end, everywhere, and nothing else.
func (m *maker) sparse() {
	m.mkdir("sparse")
	m.holes("sparse/end", 16<<20, []int64{0})
	m.holes("sparse/begin", 16<<20, []int64{16<<20 - 4096})
	m.holes("sparse/far", m.scale*40<<20, []int64{1 << 20, m.scale * 30 << 20})
	m.holes("sparse/only", 8<<20, nil)
	var many []int64
	for i := range m.scale * 300 {
		many = append(many, i*16384+i%3*4096)
	}
	m.holes("sparse/pieces", m.scale*300*16384+100, many)
}

// holes creates a file of a size that has 4096 bytes at each offset.
func (m *maker) holes(name string, size int64, places []int64) {
	f, err := os.Create(m.path(name))
	if err != nil {
		m.do(err)
		return
	}
	err = f.Truncate(size)
	for _, at := range places {
		if err == nil {
			_, err = f.WriteAt(m.bytes(4096), at)
		}
	}
	m.do(errors.Join(err, f.Close()))
}

func (m *maker) deep() {
	name := "deep"
	m.mkdir(name)
	for i := range 90 {
		name += fmt.Sprintf("/%d", i)
		m.mkdir(name)
	}
	m.file(name+"/bottom", []byte("bottom\n"))
}

// crowd creates a directory of many entries with long names.
func (m *maker) crowd(n int) {
	m.mkdir("crowd")
	for i := range n {
		m.file(fmt.Sprintf("crowd/%06d-%s", i*7919%n, strings.Repeat("c", 40+i%100)), m.bytes(i%50))
	}
}

// rest creates ordinary files until there are enough.
func (m *maker) rest(entries int) {
	for i := 0; m.n < entries && m.err == nil; i++ {
		dir := fmt.Sprintf("rest%d", i)
		m.mkdir(dir)
		for k := 0; k < 199 && m.n < entries; k++ {
			size := m.r.IntN(3000)
			if k%20 == 0 {
				size = m.r.IntN(100_000)
			}
			m.file(fmt.Sprintf("%s/file%d.txt", dir, k), m.bytes(size))
		}
	}
}
