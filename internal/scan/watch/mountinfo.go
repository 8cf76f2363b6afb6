package watch

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// mountEntry is a line of the kernel's mount table, proc(5) "/proc/pid/mountinfo".
type mountEntry struct {
	id         int
	parentID   int    // the mount it is mounted on
	dev        string // major:minor, the same for all mounts of a file system
	root       string // the directory of the file system that is visible here
	mountPoint string // where
	fsType     string
}

// maxMounts is how many mounts are read; the kernel's own limit is 100,000 per namespace.
const maxMounts = 100_000

// parseMounts parses the table. Invalid lines are left out.
func parseMounts(table []byte) []mountEntry {
	var out []mountEntry
	for line := range bytes.Lines(table) {
		if m, ok := parseMount(string(bytes.TrimSuffix(line, []byte("\n")))); ok && len(out) < maxMounts {
			out = append(out, m)
		}
	}
	return out
}

// parseMount parses one line: id, parent, device, root, point, options, any number of tags, "-",
// type, source, options.
func parseMount(line string) (mountEntry, bool) {
	head, tail, ok := strings.Cut(line, " - ")
	fields := strings.Fields(head)
	if !ok || len(fields) < 6 {
		return mountEntry{}, false
	}
	id, err1 := strconv.Atoi(fields[0])
	above, err2 := strconv.Atoi(fields[1])
	kind, _, _ := strings.Cut(tail, " ")
	m := mountEntry{
		id: id, parentID: above, dev: fields[2], root: unescapeMountPath(fields[3]),
		mountPoint: unescapeMountPath(fields[4]),
		fsType:     unescapeMountPath(kind),
	}
	if err1 != nil || err2 != nil || kind == "" || !isCleanPath(m.root) || !isCleanPath(m.mountPoint) {
		return mountEntry{}, false
	}
	return m, true
}

// isCleanPath reports whether a path is absolute and has no empty or dotted parts. The path of a
// mount outside of the process's root, or of a removed directory, does not.
func isCleanPath(p string) bool {
	if !strings.HasPrefix(p, "/") || strings.HasSuffix(p, "//deleted") || strings.ContainsRune(p, 0) {
		return false
	}
	if p == "/" {
		return true
	}
	return !slices.ContainsFunc(strings.Split(p[1:], "/"),
		func(s string) bool { return s == "" || s == "." || s == ".." })
}

// unescapeMountPath decodes characters that the kernel writes as a backslash and three octal digits: blanks,
// line ends and backslashes.
func unescapeMountPath(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// mountTable is the mount table.
type mountTable struct {
	mounts  []mountEntry
	byID    map[int]int    // id -> index in the list
	byPoint map[string]int // mount point -> index in the list of the visible mount
}

// newMountTable records for each point the visible mount: of several on the same point the topmost one.
func newMountTable(list []mountEntry) *mountTable {
	t := &mountTable{mounts: list, byID: make(map[int]int, len(list)), byPoint: make(map[string]int, len(list))}
	for i, m := range list {
		t.byID[m.id] = i
		if j, ok := t.byPoint[m.mountPoint]; !ok || list[j].parentID != m.id {
			t.byPoint[m.mountPoint] = i
		}
	}
	return t
}

// mountOf returns the mount through which a path is visible.
func (t *mountTable) mountOf(path string) (mountEntry, bool) {
	for p := path; p != ""; p = parentPath(p) {
		if i, ok := t.byPoint[p]; ok {
			return t.mounts[i], true
		}
	}
	return mountEntry{}, false
}

// visibleMounts lists the mounts that can be reached: not those hidden by others, neither at the same
// point nor above.
func (t *mountTable) visibleMounts() []mountEntry {
	var out []mountEntry
	for i, m := range t.mounts {
		if t.byPoint[m.mountPoint] == i && t.isReachable(m) {
			out = append(out, m)
		}
	}
	return out
}

// isReachable reports whether the mount that a point is in is the one it was mounted on.
func (t *mountTable) isReachable(m mountEntry) bool {
	for range t.mounts { // down the stack of mounts on one point
		i, ok := t.byID[m.parentID]
		if !ok || t.mounts[i].mountPoint != m.mountPoint {
			break
		}
		m = t.mounts[i]
	}
	o, ok := t.mountOf(parentPath(m.mountPoint))
	return !ok || o.id == m.parentID
}

// changedPoints lists the points at which another file system is mounted than before.
func changedPoints(old, now *mountTable) []string {
	seen := func(t *mountTable) map[string]mountEntry {
		out := map[string]mountEntry{}
		for _, m := range t.visibleMounts() {
			out[m.mountPoint] = m
		}
		return out
	}
	before, after := seen(old), seen(now)
	var out []string
	for p, m := range after {
		if b, ok := before[p]; !ok || b != m {
			out = append(out, p)
		}
	}
	for p := range before {
		if _, ok := after[p]; !ok {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// excludedFSTypes are the file systems without files of this machine: they are virtual, or on other
// machines. A full scan leaves the same ones out.
var excludedFSTypes = map[string]string{}

const reasonNetworkFS = "it is a network file system"

func init() {
	for k := range strings.FieldsSeq(`proc sysfs devpts devtmpfs cgroup cgroup2 cpuset debugfs tracefs securityfs bpf
		pstore efivarfs binfmt_misc selinuxfs smackfs apparmorfs hugetlbfs autofs mqueue configfs fusectl rpc_pipefs
		nsfs nfsd resctrl bdev pipefs sockfs`) {
		excludedFSTypes[k] = "it contains no files"
	}
	for k := range strings.FieldsSeq(`nfs nfs4 smb smbfs smb3 cifs coda afs ceph 9p`) {
		excludedFSTypes[k] = reasonNetworkFS
	}
}
