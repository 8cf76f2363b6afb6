// Package crashfs computes what a power loss may leave of a directory tree. Killed processes cannot
// reveal a missing fsync, since the page cache survives them; a Tree can.
//
// It does not change the files that it watches and is not part of a program: code under test calls
// Sync in place of fsync, and the test writes the state after a crash to another directory and
// opens that.
//
// Invariant: a State has no byte and no name that was not synced, unless Keep allows it.
package crashfs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// Keep defines what survives although it was not synced. A file system may keep either, and after a
// killed process both survive.
type Keep struct {
	Names bool // creations, renames and removals
	Data  bool // bytes of files
}

// Keeps are all kinds of crashes, the worst first.
var Keeps = []Keep{{}, {Names: true}, {Data: true}, {Names: true, Data: true}}

func (k Keep) String() string {
	switch k {
	case Keep{Names: true}:
		return "unsynced data is lost"
	case Keep{Data: true}:
		return "unsynced names are lost"
	case Keep{Names: true, Data: true}:
		return "nothing is lost"
	}
	return "all that is unsynced is lost"
}

// Tree is a directory tree with its content on stable storage. Its methods may be called from many
// goroutines.
type Tree struct {
	base string

	mu    sync.Mutex // guards the fields below
	nodes map[uint64]*node
}

// node is a file or directory, identified by its inode. It stays open, so that the number is not
// reused.
type node struct {
	open  *os.File
	mode  fs.FileMode
	data  []byte            // of a file at its last sync
	names map[string]uint64 // of a directory at its last sync
}

// Watch starts watching the tree below base, an absolute path. The existing content counts as synced.
func Watch(base string) (*Tree, error) {
	t := &Tree{base: base, nodes: map[uint64]*node{}}
	err := filepath.WalkDir(base, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return t.record(path)
	})
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close ends the watch: nothing can be synced afterwards.
func (t *Tree) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, n := range t.nodes {
		errs = append(errs, n.open.Close())
	}
	t.nodes = nil
	return errors.Join(errs...)
}

// Sync stands for fsync of an open file or directory: its content survives from then on. It must
// still have the name that it was opened by. Files outside of the tree are ignored.
func (t *Tree) Sync(f *os.File) error {
	here, err := f.Stat() // an error for a closed file
	if err != nil {
		return err
	}
	if below, err := filepath.Rel(t.base, f.Name()); err != nil || !filepath.IsLocal(below) {
		return nil
	}
	there, err := os.Lstat(f.Name())
	if err != nil {
		return err
	}
	if !os.SameFile(here, there) {
		return fmt.Errorf("%s is another file by now", f.Name())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes == nil {
		return os.ErrClosed
	}
	return t.record(f.Name())
}

// record stores the content of a file or directory.
func (t *Tree) record(path string) error {
	n, err := t.node(path)
	if err != nil {
		return err
	}
	if !n.mode.IsDir() {
		n.data, err = os.ReadFile(path)
		return err
	}
	n.names, err = t.list(path)
	return err
}

// node returns the node of a path; a new one is empty.
func (t *Tree) node(path string) (*node, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() && !st.IsDir() {
		err = fmt.Errorf("%s is neither a file nor a directory", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	ino := inode(st)
	if n := t.nodes[ino]; n != nil {
		n.mode = st.Mode()
		return n, f.Close()
	}
	n := &node{open: f, mode: st.Mode()}
	t.nodes[ino] = n
	return n, nil
}

// list returns the names in a directory, and creates the nodes of all of them.
func (t *Tree) list(dir string) (map[string]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := map[string]uint64{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		n, err := t.node(path)
		if err != nil {
			return nil, err
		}
		st, err := n.open.Stat()
		if err != nil {
			return nil, err
		}
		names[e.Name()] = inode(st)
	}
	return names, nil
}

func inode(st fs.FileInfo) uint64 {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return sys.Ino
}

// State is the tree that a crash leaves.
type State struct {
	Sum     string // equal sums are equal trees
	entries []entry
}

// entry is a file or directory.
type entry struct {
	name string // below the base, "." for the base
	mode fs.FileMode
	data []byte
}

// Crash returns what a crash at this moment leaves. The tree must not be changed concurrently.
func (t *Tree) Crash(keep Keep) (State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var s State
	st, err := os.Stat(t.base)
	if err == nil {
		err = t.crash(&s, ".", inode(st), keep)
	}
	if err != nil {
		return State{}, err
	}
	h := sha256.New()
	for _, e := range s.entries {
		fmt.Fprintf(h, "%q %v %x\n", e.name, e.mode, sha256.Sum256(e.data))
	}
	s.Sum = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

// crash adds what is left of a file or directory, parents first.
func (t *Tree) crash(s *State, name string, ino uint64, keep Keep) error {
	n := t.nodes[ino]
	if !n.mode.IsDir() {
		data, err := n.content(keep)
		s.entries = append(s.entries, entry{name, n.mode, data})
		return err
	}
	s.entries = append(s.entries, entry{name: name, mode: n.mode})
	names := n.names
	if keep.Names {
		var err error
		if names, err = t.list(filepath.Join(t.base, name)); err != nil {
			return err
		}
	}
	for _, child := range slices.Sorted(maps.Keys(names)) {
		if err := t.crash(s, filepath.Join(name, child), names[child], keep); err != nil {
			return err
		}
	}
	return nil
}

// content returns what is left of a file's bytes.
func (n *node) content(keep Keep) ([]byte, error) {
	if !keep.Data {
		return n.data, nil
	}
	st, err := n.open.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(n.open, 0, st.Size()))
}

// Write creates dir, which must not exist, as the base of such a tree.
func (s State) Write(dir string) error {
	for _, e := range s.entries {
		path := filepath.Join(dir, e.name)
		var err error
		if e.mode.IsDir() {
			err = os.Mkdir(path, e.mode.Perm())
		} else {
			err = os.WriteFile(path, e.data, e.mode.Perm())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
