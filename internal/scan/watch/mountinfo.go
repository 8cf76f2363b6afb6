package watch

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// mounted is a line of the kernel's mount table, proc(5) "/proc/pid/mountinfo".
type mounted struct {
	id    int
	above int    // the mount it is mounted on
	dev   string // major:minor, the same for all mounts of a file system
	root  string // the directory of the file system that is visible here
	point string // where
	kind  string
}

// maxMounts is how many mounts are read; the kernel's own limit is 100,000 per namespace.
const maxMounts = 100_000

// parseMounts parses the table. Invalid lines are left out.
func parseMounts(table []byte) []mounted {
	var out []mounted
	for line := range bytes.Lines(table) {
		if m, ok := parseMount(string(bytes.TrimSuffix(line, []byte("\n")))); ok && len(out) < maxMounts {
			out = append(out, m)
		}
	}
	return out
}

// parseMount parses one line: id, parent, device, root, point, options, any number of tags, "-",
// type, source, options.
func parseMount(line string) (mounted, bool) {
	head, tail, ok := strings.Cut(line, " - ")
	fields := strings.Fields(head)
	if !ok || len(fields) < 6 {
		return mounted{}, false
	}
	id, err1 := strconv.Atoi(fields[0])
	above, err2 := strconv.Atoi(fields[1])
	kind, _, _ := strings.Cut(tail, " ")
	m := mounted{
		id: id, above: above, dev: fields[2], root: unescape(fields[3]), point: unescape(fields[4]),
		kind: unescape(kind),
	}
	if err1 != nil || err2 != nil || kind == "" || !cleanPath(m.root) || !cleanPath(m.point) {
		return mounted{}, false
	}
	return m, true
}

// cleanPath reports whether a path is absolute and has no empty or dotted parts. The path of a
// mount outside of the process's root, or of a removed directory, does not.
func cleanPath(p string) bool {
	if !strings.HasPrefix(p, "/") || strings.HasSuffix(p, "//deleted") || strings.ContainsRune(p, 0) {
		return false
	}
	if p == "/" {
		return true
	}
	return !slices.ContainsFunc(strings.Split(p[1:], "/"),
		func(s string) bool { return s == "" || s == "." || s == ".." })
}

// unescape decodes characters that the kernel writes as a backslash and three octal digits: blanks,
// line ends and backslashes.
func unescape(s string) string {
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

// table is the mount table.
type table struct {
	list  []mounted
	id    map[int]int    // id -> index in the list
	point map[string]int // mount point -> index in the list of the visible mount
}

// newTable records for each point the visible mount: of several on the same point the topmost one.
func newTable(list []mounted) *table {
	t := &table{list: list, id: make(map[int]int, len(list)), point: make(map[string]int, len(list))}
	for i, m := range list {
		t.id[m.id] = i
		if j, ok := t.point[m.point]; !ok || list[j].above != m.id {
			t.point[m.point] = i
		}
	}
	return t
}

// owner returns the mount through which a path is visible.
func (t *table) owner(path string) (mounted, bool) {
	for p := path; p != ""; p = parent(p) {
		if i, ok := t.point[p]; ok {
			return t.list[i], true
		}
	}
	return mounted{}, false
}

// visible lists the mounts that can be reached: not those hidden by others, neither at the same
// point nor above.
func (t *table) visible() []mounted {
	var out []mounted
	for i, m := range t.list {
		if t.point[m.point] == i && t.reached(m) {
			out = append(out, m)
		}
	}
	return out
}

// reached reports whether the mount that a point is in is the one it was mounted on.
func (t *table) reached(m mounted) bool {
	for range t.list { // down the stack of mounts on one point
		i, ok := t.id[m.above]
		if !ok || t.list[i].point != m.point {
			break
		}
		m = t.list[i]
	}
	o, ok := t.owner(parent(m.point))
	return !ok || o.id == m.above
}

// changed lists the points at which another file system is mounted than before.
func changed(old, now *table) []string {
	seen := func(t *table) map[string]mounted {
		out := map[string]mounted{}
		for _, m := range t.visible() {
			out[m.point] = m
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

// elsewhere are the file systems without files of this machine: they are virtual, or on other
// machines. A full scan leaves the same ones out.
var elsewhere = map[string]string{}

const onOther = "it is a network file system"

func init() {
	for k := range strings.FieldsSeq(`proc sysfs devpts devtmpfs cgroup cgroup2 cpuset debugfs tracefs securityfs bpf
		pstore efivarfs binfmt_misc selinuxfs smackfs apparmorfs hugetlbfs autofs mqueue configfs fusectl rpc_pipefs
		nsfs nfsd resctrl bdev pipefs sockfs`) {
		elsewhere[k] = "it contains no files"
	}
	for k := range strings.FieldsSeq(`nfs nfs4 smb smbfs smb3 cifs coda afs ceph 9p`) {
		elsewhere[k] = onOther
	}
}
