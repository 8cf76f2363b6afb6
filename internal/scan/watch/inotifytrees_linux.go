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
	inoAppeared = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	inoRemoved  = unix.IN_DELETE | unix.IN_MOVED_FROM
	inoMask     = inoAppeared | inoRemoved | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_EXCL_UNLINK
)

// inotifyTrees are directory trees watched by inotify, one watch per directory, with the ancestors
// of each from the root. When an ancestor is renamed or removed, its trees are removed too, and a
// tree that does not exist yet is added when its last ancestor is created. One goroutine uses it.
type inotifyTrees struct {
	cfg          *watchConfig
	fd           int
	maxWatches   int
	isOtherMount func(path string) bool // a file system not watched by inotify is mounted here

	startDirs  []string               // roots of the trees, existing or not
	trees      map[string]*watchedDir // start -> its tree
	ancestors  map[string]*watchedDir // ancestors of starts
	byWatch    map[int32][]*watchedDir
	unwatched  map[string]bool // directories without a watch
	polledDirs []string        // directories whose changes no watch would report

	limitReached bool
	deniedDirs   int // directories that this process has no permission to read
	changeCount  int // changes when rest or refused do
}

// watchedDir is a watched directory.
type watchedDir struct {
	watchID    int32
	name       string // whole path of a start or an ancestor
	parent     *watchedDir
	children   map[string]*watchedDir
	isAncestor bool
}

// path returns the path of a directory.
func (n *watchedDir) path() string {
	if n.parent == nil {
		return n.name
	}
	return joinPath(n.parent.path(), n.name)
}

func newInotifyTrees(s *watchConfig) (*inotifyTrees, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &inotifyTrees{
		cfg: s, fd: fd, maxWatches: s.limits.maxWatches, isOtherMount: func(string) bool { return false },
		trees: map[string]*watchedDir{}, ancestors: map[string]*watchedDir{}, byWatch: map[int32][]*watchedDir{},
		unwatched: map[string]bool{},
	}, nil
}

// setTrees sets the roots of the trees. Existing trees stay unchanged.
func (g *inotifyTrees) setTrees(starts []string) {
	slices.Sort(starts)
	starts = slices.Compact(starts)
	for _, old := range g.startDirs {
		if !slices.Contains(starts, old) {
			g.removeTree(old)
		}
	}
	g.startDirs = starts
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
	if g.trees[start] != nil || g.isOtherMount(start) {
		return false
	}
	n := g.watchTree(nil, start)
	if n != nil {
		g.trees[start] = n
	}
	return n != nil
}

// watchAncestors watches one ancestor.
func (g *inotifyTrees) watchAncestors(path string) bool {
	if g.ancestors[path] != nil {
		return true
	}
	n := &watchedDir{name: path, isAncestor: true}
	if err := g.addWatch(n, path); err != nil {
		// An ancestor that cannot be watched may be skipped: its removal is unlikely.
		return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR)
	}
	g.ancestors[path] = n
	return true
}

// removeTree removes a tree. Its ancestors stay watched.
func (g *inotifyTrees) removeTree(start string) {
	if n := g.trees[start]; n != nil {
		g.dropWatches(n)
		delete(g.trees, start)
	}
	g.forgetUnwatched(start)
}

// addWatch adds the watch of a directory.
func (g *inotifyTrees) addWatch(n *watchedDir, path string) error {
	if len(g.byWatch) >= g.maxWatches {
		return unix.ENOSPC
	}
	wd, err := unix.InotifyAddWatch(g.fd, path, inoMask)
	if err != nil {
		return err
	}
	n.watchID = int32(wd)
	g.byWatch[n.watchID] = append(g.byWatch[n.watchID], n)
	return nil
}

// watchTree watches a directory and those below. Each is watched before it is listed.
func (g *inotifyTrees) watchTree(up *watchedDir, name string) *watchedDir {
	n := &watchedDir{name: name, parent: up}
	path := n.path()
	if !g.cfg.isWatched(path) || up != nil && g.isOtherMount(path) {
		return nil
	}
	switch err := g.addWatch(n, path); {
	case err == nil:
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM):
		g.limitReached = true
		g.leaveToPolling(path)
		return nil
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		g.deniedDirs++
		g.changeCount++
		return nil
	default:
		return nil // gone, or a link
	}
	if up != nil {
		if up.children == nil {
			up.children = map[string]*watchedDir{}
		}
		up.children[name] = n
	}
	for _, kid := range listDirs(path) {
		if n.children[kid] == nil {
			g.watchTree(n, kid)
		}
	}
	return n
}

// listDirs lists the directories in a directory, as far as it can be read.
func listDirs(path string) []string {
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

// leaveToPolling leaves a directory to polling.
func (g *inotifyTrees) leaveToPolling(path string) {
	for p := path; p != ""; p = parentPath(p) {
		if g.unwatched[p] {
			return
		}
	}
	g.unwatched[path] = true
	g.changeCount++
}

// forgetUnwatched removes the directories below a path from those left to polling.
func (g *inotifyTrees) forgetUnwatched(path string) {
	for p := range g.unwatched {
		if isWithin(path, p) {
			delete(g.unwatched, p)
			g.changeCount++
		}
	}
}

// dropWatches removes the watches of a directory and those below.
func (g *inotifyTrees) dropWatches(n *watchedDir) {
	for _, k := range n.children {
		g.dropWatches(k)
	}
	list := g.byWatch[n.watchID]
	i := slices.Index(list, n)
	if i < 0 {
		return
	}
	if list = slices.Delete(list, i, i+1); len(list) > 0 {
		g.byWatch[n.watchID] = list
		return
	}
	delete(g.byWatch, n.watchID)
	_, _ = unix.InotifyRmWatch(g.fd, uint32(n.watchID)) // the kernel may have removed it
}

// findDirs returns the watched directories at a path, without ancestors.
func (g *inotifyTrees) findDirs(path string) []*watchedDir {
	var out []*watchedDir
	for start, n := range g.trees {
		if !isWithin(start, path) {
			continue
		}
		for name := range strings.SplitSeq(strings.Trim(path[len(start):], "/"), "/") {
			if name != "" && n != nil {
				n = n.children[name]
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
	for _, n := range g.findDirs(path) {
		if n.parent == nil {
			g.removeTree(n.name)
			continue
		}
		g.dropWatches(n)
		delete(n.parent.children, n.name)
	}
	for _, start := range g.startDirs {
		if isWithin(path, start) {
			g.removeTree(start)
		}
	}
	for at, n := range g.ancestors {
		if isWithin(path, at) {
			g.dropWatches(n)
			delete(g.ancestors, at)
		}
	}
	g.forgetUnwatched(path)
}

// rewatchTree restores the watches that unwatchTree removed at a path: a part of a tree, and trees
// below.
func (g *inotifyTrees) rewatchTree(path string) {
	if up := parentPath(path); up != "" {
		for _, n := range g.findDirs(up) {
			if name := strings.TrimPrefix(path[len(up):], "/"); n.children[name] == nil {
				g.watchTree(n, name)
			}
		}
	}
	for _, start := range g.startDirs {
		if isWithin(path, start) {
			g.addTree(start)
		}
	}
}

// handleEvent handles one event of the kernel.
func (g *inotifyTrees) handleEvent(buffer *changeBuffer, e inoEvent) {
	switch {
	case e.mask&unix.IN_Q_OVERFLOW != 0:
		g.handleOverflow(buffer)
	case e.mask&unix.IN_IGNORED != 0:
		for _, n := range slices.Clone(g.byWatch[e.watchID]) {
			g.handleIgnored(n)
		}
	case e.name == "":
	default:
		for _, n := range slices.Clone(g.byWatch[e.watchID]) {
			if n.isAncestor {
				g.handleAncestor(buffer, joinPath(n.name, e.name), e.mask)
			} else {
				g.reportChange(buffer, n, e)
			}
		}
	}
}

// handleOverflow starts over: directories may have come and gone unnoticed.
func (g *inotifyTrees) handleOverflow(buffer *changeBuffer) {
	g.cfg.Log.Warn("The inotify queue overflowed; the package directories are scanned again.")
	if err := g.recreate(); err != nil {
		g.cfg.Log.Error("Watching the package directories again failed; changes may be missed.", "error", err)
	} else {
		g.setTrees(g.startDirs)
	}
	for _, st := range g.startDirs {
		buffer.add(st, DirChanged)
	}
}

// recreate replaces the queue by a new one without watches. Removing the watches one by one would
// queue an event for each, and overflow the queue again.
func (g *inotifyTrees) recreate() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("inotify_init1", err)
	}
	defer closeFD(fd)
	if err := unix.Dup3(fd, g.fd, unix.O_CLOEXEC); err != nil {
		return os.NewSyscallError("dup3", err)
	}
	clear(g.trees)
	clear(g.ancestors)
	clear(g.byWatch)
	clear(g.unwatched)
	g.limitReached = false
	g.changeCount++
	return nil
}

// handleIgnored removes a directory that the kernel no longer watches.
func (g *inotifyTrees) handleIgnored(n *watchedDir) {
	delete(g.byWatch, n.watchID)
	switch {
	case n.isAncestor:
		delete(g.ancestors, n.name)
	case n.parent == nil:
		delete(g.trees, n.name)
	case n.parent.children[n.name] == n:
		delete(n.parent.children, n.name)
	}
}

// handleAncestor handles changes of the ancestors.
func (g *inotifyTrees) handleAncestor(buffer *changeBuffer, path string, mask uint32) {
	if mask&(inoRemoved|unix.IN_CREATE|unix.IN_MOVED_TO) == 0 {
		return
	}
	var touched []string
	for _, start := range g.startDirs {
		if isWithin(path, start) {
			touched = append(touched, start)
		}
	}
	if len(touched) == 0 {
		return
	}
	if mask&inoRemoved != 0 {
		g.unwatchTree(path)
	}
	for _, start := range touched {
		switch {
		case g.addTree(start):
			buffer.add(start, DirChanged)
		case g.trees[start] == nil && mask&inoRemoved != 0:
			buffer.add(start, Removed)
		}
	}
}

// reportChange reports a change in a watched directory.
func (g *inotifyTrees) reportChange(buffer *changeBuffer, n *watchedDir, e inoEvent) {
	isDir, left := e.mask&unix.IN_ISDIR != 0, e.mask&inoRemoved != 0
	if !isDir && !g.cfg.WantsFile(e.name) || isDir && e.mask&^(unix.IN_ISDIR|unix.IN_ATTRIB) == 0 {
		return
	}
	path := joinPath(n.path(), e.name)
	switch {
	case !isDir && left:
		buffer.add(path, Removed)
	case !isDir:
		buffer.add(path, FileChanged)
	case !g.cfg.isWatched(path):
	case left:
		g.unwatchTree(path)
		buffer.add(path, Removed)
	case g.isOtherMount(path):
	default:
		g.unwatchTree(path)
		g.rewatchTree(path)
		buffer.add(path, DirChanged)
	}
}

// listUnwatched lists the directories that have to be polled.
func (g *inotifyTrees) listUnwatched() []string {
	out := append(slices.Collect(maps.Keys(g.unwatched)), g.polledDirs...)
	slices.Sort(out)
	return slices.Compact(out)
}

// unwatchedReason returns why some are.
func (g *inotifyTrees) unwatchedReason() string {
	if !g.limitReached {
		return ""
	}
	n := g.maxWatches
	if b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); err == nil {
		if m, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			n = min(n, m)
		}
	}
	return fmt.Sprintf("there are no watches left of %d (fs.inotify.max_user_watches)", n)
}
