package watch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	inoCame = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	inoLeft = unix.IN_DELETE | unix.IN_MOVED_FROM
	inoMask = inoCame | inoLeft | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_EXCL_UNLINK
)

// inotifyTrees are directory trees watched by inotify, one watch per directory, with the ancestors
// of each from the root. When an ancestor is renamed or removed, its trees are removed too, and a
// tree that does not exist yet is added when its last ancestor is created. One goroutine uses it.
type inotifyTrees struct {
	s       *scope
	fd      int
	limit   int
	foreign func(path string) bool // a file system not watched by inotify is mounted here

	starts    []string         // roots of the trees, existing or not
	trees     map[string]*node // start -> its tree
	steps     map[string]*node // ancestors of starts
	nodes     map[int32][]*node
	unwatched map[string]bool // directories without a watch
	polled    []string        // directories whose changes no watch would report

	full    bool
	refused int // directories that this process has no permission to read
	version int // changes when rest or refused do
}

// node is a watched directory.
type node struct {
	watch int32
	name  string // whole path of a start or an ancestor
	up    *node
	kids  map[string]*node
	step  bool
}

// path returns the path of a directory.
func (n *node) path() string {
	if n.up == nil {
		return n.name
	}
	return join(n.up.path(), n.name)
}

func newInotifyTrees(s *scope) (*inotifyTrees, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &inotifyTrees{
		s: s, fd: fd, limit: s.tune.watches, foreign: func(string) bool { return false },
		trees: map[string]*node{}, steps: map[string]*node{}, nodes: map[int32][]*node{}, unwatched: map[string]bool{},
	}, nil
}

// setTrees sets the roots of the trees. Existing trees stay unchanged.
func (g *inotifyTrees) setTrees(starts []string) {
	slices.Sort(starts)
	starts = slices.Compact(starts)
	for _, old := range g.starts {
		if !slices.Contains(starts, old) {
			g.removeTree(old)
		}
	}
	g.starts = starts
	for _, st := range starts {
		g.addTree(st)
	}
}

// addTree watches the ancestors of a start, and its tree if it exists. It reports whether the tree
// was added by this call. The order ensures that no directory appears unnoticed: each ancestor is
// watched before the next one is looked up.
func (g *inotifyTrees) addTree(start string) bool {
	for i, c := range start {
		if c != '/' {
			continue
		}
		if !g.watchAncestors(start[:max(i, 1)]) {
			return false
		}
	}
	if g.trees[start] != nil || g.foreign(start) {
		return false
	}
	n := g.grow(nil, start)
	if n != nil {
		g.trees[start] = n
	}
	return n != nil
}

// watchAncestors watches one ancestor.
func (g *inotifyTrees) watchAncestors(path string) bool {
	if g.steps[path] != nil {
		return true
	}
	n := &node{name: path, step: true}
	if err := g.add(n, path); err != nil {
		// An ancestor that cannot be watched may be skipped: its removal is unlikely.
		return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR)
	}
	g.steps[path] = n
	return true
}

// removeTree removes a tree. Its ancestors stay watched.
func (g *inotifyTrees) removeTree(start string) {
	if n := g.trees[start]; n != nil {
		g.drop(n)
		delete(g.trees, start)
	}
	g.trim(start)
}

// add adds the watch of a directory.
func (g *inotifyTrees) add(n *node, path string) error {
	if len(g.nodes) >= g.limit {
		return unix.ENOSPC
	}
	wd, err := unix.InotifyAddWatch(g.fd, path, inoMask)
	if err != nil {
		return err
	}
	n.watch = int32(wd)
	g.nodes[n.watch] = append(g.nodes[n.watch], n)
	return nil
}

// grow watches a directory and those below. Each is watched before it is listed.
func (g *inotifyTrees) grow(up *node, name string) *node {
	n := &node{name: name, up: up}
	path := n.path()
	if !g.s.seen(path) || up != nil && g.foreign(path) {
		return nil
	}
	switch err := g.add(n, path); {
	case err == nil:
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM):
		g.full = true
		g.leave(path)
		return nil
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		g.refused++
		g.version++
		return nil
	default:
		return nil // gone, or a link
	}
	if up != nil {
		if up.kids == nil {
			up.kids = map[string]*node{}
		}
		up.kids[name] = n
	}
	for _, kid := range dirsIn(path) {
		if n.kids[kid] == nil {
			g.grow(n, kid)
		}
	}
	return n
}

// dirsIn lists the directories in a directory, as far as it can be read.
func dirsIn(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []string
	for {
		list, err := f.ReadDir(512)
		for _, e := range list {
			if e.IsDir() {
				out = append(out, e.Name())
			}
		}
		if err != nil || len(list) == 0 {
			return out
		}
	}
}

// leave leaves a directory to polling.
func (g *inotifyTrees) leave(path string) {
	for p := path; p != ""; p = parent(p) {
		if g.unwatched[p] {
			return
		}
	}
	g.unwatched[path] = true
	g.version++
}

// trim removes the directories below a path from those left to polling.
func (g *inotifyTrees) trim(path string) {
	for p := range g.unwatched {
		if within(path, p) {
			delete(g.unwatched, p)
			g.version++
		}
	}
}

// drop removes the watches of a directory and those below.
func (g *inotifyTrees) drop(n *node) {
	for _, k := range n.kids {
		g.drop(k)
	}
	list := g.nodes[n.watch]
	i := slices.Index(list, n)
	if i < 0 {
		return
	}
	if list = slices.Delete(list, i, i+1); len(list) > 0 {
		g.nodes[n.watch] = list
		return
	}
	delete(g.nodes, n.watch)
	_, _ = unix.InotifyRmWatch(g.fd, uint32(n.watch)) // the kernel may have removed it
}

// find returns the watched directories at a path, without ancestors.
func (g *inotifyTrees) find(path string) []*node {
	var out []*node
	for start, n := range g.trees {
		if !within(start, path) {
			continue
		}
		for name := range strings.SplitSeq(strings.Trim(path[len(start):], "/"), "/") {
			if name != "" && n != nil {
				n = n.kids[name]
			}
		}
		if n != nil {
			out = append(out, n)
		}
	}
	return out
}

// unwatchTree removes all watches of a path and what is below.
func (g *inotifyTrees) unwatchTree(path string) {
	for _, n := range g.find(path) {
		if n.up == nil {
			g.removeTree(n.name)
			continue
		}
		g.drop(n)
		delete(n.up.kids, n.name)
	}
	for _, start := range g.starts {
		if within(path, start) {
			g.removeTree(start)
		}
	}
	for at, n := range g.steps {
		if within(path, at) {
			g.drop(n)
			delete(g.steps, at)
		}
	}
	g.trim(path)
}

// rewatchTree restores the watches that unwatchTree removed at a path: a part of a tree, and trees
// below.
func (g *inotifyTrees) rewatchTree(path string) {
	if up := parent(path); up != "" {
		for _, n := range g.find(up) {
			if name := strings.TrimPrefix(path[len(up):], "/"); n.kids[name] == nil {
				g.grow(n, name)
			}
		}
	}
	for _, start := range g.starts {
		if within(path, start) {
			g.addTree(start)
		}
	}
}

// event handles one event of the kernel.
func (g *inotifyTrees) event(news *changeBuffer, e inoEvent) {
	switch {
	case e.mask&unix.IN_Q_OVERFLOW != 0:
		g.overflow(news)
	case e.mask&unix.IN_IGNORED != 0:
		for _, n := range slices.Clone(g.nodes[e.watch]) {
			g.ignored(n)
		}
	case e.name == "":
	default:
		for _, n := range slices.Clone(g.nodes[e.watch]) {
			if n.step {
				g.stepped(news, join(n.name, e.name), e.mask)
			} else {
				g.changed(news, n, e)
			}
		}
	}
}

// overflow starts over: directories may have come and gone unnoticed.
func (g *inotifyTrees) overflow(news *changeBuffer) {
	g.s.Log.Warn("The kernel queue overflowed: the package directories are scanned again.")
	if err := g.renew(); err != nil {
		g.s.Log.Error("Changes may be missed: watching the directories again failed.", "error", err)
	} else {
		g.setTrees(g.starts)
	}
	for _, st := range g.starts {
		news.add(st, Folder)
	}
}

// renew replaces the queue by a new one without watches. Removing the watches one by one would
// queue an event for each, and overflow the queue again.
func (g *inotifyTrees) renew() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("inotify_init1", err)
	}
	defer closeFile(fd)
	if err := unix.Dup3(fd, g.fd, unix.O_CLOEXEC); err != nil {
		return os.NewSyscallError("dup3", err)
	}
	clear(g.trees)
	clear(g.steps)
	clear(g.nodes)
	clear(g.unwatched)
	g.full = false
	g.version++
	return nil
}

// ignored removes a directory that the kernel no longer watches.
func (g *inotifyTrees) ignored(n *node) {
	delete(g.nodes, n.watch)
	switch {
	case n.step:
		delete(g.steps, n.name)
	case n.up == nil:
		delete(g.trees, n.name)
	case n.up.kids[n.name] == n:
		delete(n.up.kids, n.name)
	}
}

// stepped handles changes of the ancestors.
func (g *inotifyTrees) stepped(news *changeBuffer, path string, mask uint32) {
	if mask&(inoLeft|unix.IN_CREATE|unix.IN_MOVED_TO) == 0 {
		return
	}
	var touched []string
	for _, start := range g.starts {
		if within(path, start) {
			touched = append(touched, start)
		}
	}
	if len(touched) == 0 {
		return
	}
	if mask&inoLeft != 0 {
		g.unwatchTree(path)
	}
	for _, start := range touched {
		switch {
		case g.addTree(start):
			news.add(start, Folder)
		case g.trees[start] == nil && mask&inoLeft != 0:
			news.add(start, Gone)
		}
	}
}

// changed reports a change in a watched directory.
func (g *inotifyTrees) changed(news *changeBuffer, n *node, e inoEvent) {
	folder, left := e.mask&unix.IN_ISDIR != 0, e.mask&inoLeft != 0
	if !folder && !g.s.Wants(e.name) || folder && e.mask&^(unix.IN_ISDIR|unix.IN_ATTRIB) == 0 {
		return
	}
	path := join(n.path(), e.name)
	switch {
	case !folder && left:
		news.add(path, Gone)
	case !folder:
		news.add(path, File)
	case !g.s.seen(path):
	case left:
		g.unwatchTree(path)
		news.add(path, Gone)
	case g.foreign(path):
	default:
		g.unwatchTree(path)
		g.rewatchTree(path)
		news.add(path, Folder)
	}
}

// listUnwatched lists the directories that have to be polled.
func (g *inotifyTrees) listUnwatched() []string {
	out := append(slices.Collect(maps.Keys(g.unwatched)), g.polled...)
	slices.Sort(out)
	return slices.Compact(out)
}

// why returns why some are.
func (g *inotifyTrees) why() string {
	if !g.full {
		return ""
	}
	n := g.limit
	if b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); err == nil {
		if m, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			n = min(n, m)
		}
	}
	return fmt.Sprintf("there are no watches left of %d (fs.inotify.max_user_watches)", n)
}
