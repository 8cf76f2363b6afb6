package container

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// Bounds on a tree. An entry takes about 300 bytes and its path.
const (
	maxEntries   = 2_000_000 // of all layers, and directories that none has an entry for
	maxPathBytes = 8 << 10
	maxNamesSum  = 256 << 20 // bytes of all paths
	maxLinks     = 40        // symbolic links on the way to one file, as Linux
	maxProblems  = 1000      // that are named
	maxSteps     = 64 << 20  // elements of all paths and links: 32 for each of so many entries
)

// errSteps ends paths that lead through long links over and over.
var errSteps = errors.New("the links of the image have too many elements")

// Names with a meaning in a layer: a file of the prefix removes the file of the rest of its name from the layers
// below, the opaque one all files of its directory. Others with the longer prefix are data of AUFS.
const (
	whiteout       = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// node is a file of the tree. Hard links are nodes with the same content.
type node struct {
	mode     fs.FileMode
	layer    int32            // the highest that has it, or something in it
	ordinal  int32            // of its entry in the layer
	file     *content         // of a regular file
	target   string           // of a symbolic link
	children map[string]*node // of a directory
}

func newDir(layer int32) *node {
	return &node{mode: fs.ModeDir | 0o755, layer: layer, children: map[string]*node{}}
}

// resolve returns the node of a path, links followed within the tree. create makes missing directories, and is nil
// where only existing nodes are of interest; it also receives those on the way. steps are the elements that may still
// be looked up; nil: any number.
func resolve(root *node, name string, followLast bool, create func(parent *node, name string, found *node) *node,
	steps *int64,
) (*node, error) {
	stack := []*node{root}
	rest, links := name, 0
	for rest != "" {
		if steps != nil {
			if *steps <= 0 {
				return nil, errSteps
			}
			*steps--
		}
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		parent := stack[len(stack)-1]
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			stack = stack[:max(len(stack)-1, 1)]
			continue
		case !parent.mode.IsDir():
			return nil, syscall.ENOTDIR
		}
		next := parent.children[part]
		isLink := next != nil && next.mode&fs.ModeSymlink != 0
		switch {
		case isLink && (rest != "" || followLast):
			if links++; links > maxLinks || len(rest)+len(next.target) > 4*maxPathBytes {
				return nil, syscall.ELOOP
			}
			if path.IsAbs(next.target) {
				stack = stack[:1]
			}
			rest = next.target + "/" + rest
			continue
		case create != nil:
			next = create(parent, part, next)
		}
		if next == nil {
			return nil, fs.ErrNotExist
		}
		stack = append(stack, next)
	}
	return stack[len(stack)-1], nil
}

// builder merges layers, from the lowest to the highest.
type builder struct {
	root     *node
	layer    int32
	entries  int
	steps    int64 // elements of paths that may still be looked up
	problems []Problem
	count    int // of problems, more than are kept
	full     bool
}

// Problem is a file of an image that could not be read.
type Problem struct{ Path, Message string }

func (b *builder) addProblem(name string, err error) {
	if b.count++; len(b.problems) < maxProblems {
		b.problems = append(b.problems, Problem{"/" + name, err.Error()})
	}
}

// apply applies the entries of the next layer, as an engine unpacks them onto the layers below.
func (b *builder) apply(layer int, entries []entry) {
	b.layer = int32(layer)
	for i := range entries {
		if err := b.add(&entries[i]); err != nil {
			b.addProblem(entries[i].path, err)
		}
	}
}

func (b *builder) add(e *entry) error {
	if e.path == "." {
		return nil
	}
	if first, _, ok := strings.Cut(e.path, "/"); ok && strings.HasPrefix(first, whiteoutMeta) {
		return nil
	}
	dir, base := path.Split(e.path)
	if strings.HasPrefix(base, whiteout) {
		return b.remove(dir, base)
	}
	parent, err := resolve(b.root, dir, true, b.directory, &b.steps)
	if err != nil {
		return fmt.Errorf("the directory that it is in: %w", err)
	}
	if b.full {
		return fmt.Errorf("the image has more than %d files", maxEntries)
	}
	n := &node{mode: e.mode, layer: b.layer, ordinal: e.ordinal, file: e.file, target: e.target}
	old := parent.children[base]
	switch {
	case e.isHardLink:
		target, err := resolve(b.root, e.target, false, nil, &b.steps)
		if err == nil && target.mode.IsDir() {
			err = errors.New("it is a directory")
		}
		if err != nil {
			n.target, n.mode, n.file = "", 0o644, &content{err: fmt.Errorf("hard link to %.200q: %w", e.target, err)}
			break
		}
		n.mode, n.file, n.target = target.mode, target.file, target.target
	case !e.mode.IsDir():
	case old != nil && old.mode.IsDir():
		old.mode, old.layer = e.mode, b.layer
		return nil
	default:
		n.children = map[string]*node{}
	}
	if old == nil {
		if b.entries++; b.entries >= maxEntries {
			b.full = true
		}
	}
	parent.children[base] = n
	return nil
}

// directory returns the directory with a name, which replaces a file. What a layer has something in is not of the
// layers below alone.
func (b *builder) directory(parent *node, name string, found *node) *node {
	if found != nil && found.mode.IsDir() {
		found.layer = b.layer
		return found
	}
	if b.full {
		return nil
	}
	if b.entries++; b.entries >= maxEntries {
		b.full = true
	}
	n := newDir(b.layer)
	parent.children[name] = n
	return n
}

// remove removes what a whiteout names.
func (b *builder) remove(dir, base string) error {
	parent, err := resolve(b.root, dir, true, nil, &b.steps)
	if errors.Is(err, errSteps) {
		return err
	}
	if err != nil || !parent.mode.IsDir() {
		return nil //nolint:nilerror // there is nothing to remove
	}
	switch {
	case base == whiteoutOpaque:
		b.removeLower(parent)
	case strings.HasPrefix(base, whiteoutMeta):
	default:
		b.removeChild(parent, base[len(whiteout):])
	}
	return nil
}

// removeLower removes the files of a directory that are of layers below.
func (b *builder) removeLower(dir *node) {
	for name := range dir.children {
		b.removeChild(dir, name)
	}
}

// removeChild removes a file of layers below; of a directory that this layer also has, what is in it.
func (b *builder) removeChild(dir *node, name string) {
	switch n := dir.children[name]; {
	case n == nil:
	case n.layer != b.layer:
		delete(dir.children, name)
	case n.mode.IsDir():
		b.removeLower(n)
	}
}
