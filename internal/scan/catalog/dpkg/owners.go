package dpkg

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

const (
	infoDir        = "var/lib/dpkg/info"
	diversionsFile = "var/lib/dpkg/diversions"
	listSuffix     = ".list"

	maxDiversionBytes = 4 << 20
)

// diversion renames a file of every package but one, so that this one, or the administrator, can have another
// file in its place.
type diversion struct {
	to []byte
	by string // name of the package; ":" for the administrator
}

// Owners reads the lists of files that dpkg keeps for each package, or the checksums of images without dpkg.
func (Packages) Owners(q *catalog.OwnerSearch) error {
	owners := map[string]string{} // by the name of a list without its suffix
	sums := map[string]string{}   // by the path of a file in status.d
	dirs := map[string]bool{}
	for i := range q.Packages {
		p := &q.Packages[i]
		owner := p.OwnerName()
		for _, key := range []string{p.Name, p.Name + ":" + p.Arch} {
			if old := owners[key]; old == "" || owner < old {
				owners[key] = owner
			}
		}
		for _, l := range p.Locations {
			if dir := path.Dir(strings.TrimPrefix(l, "/")); path.Base(dir) == "status.d" {
				dirs[dir], sums[strings.TrimPrefix(l, "/")] = true, owner
			}
		}
	}
	var errs []error
	if len(dirs) < len(q.Databases) || len(dirs) == 0 {
		errs = append(errs, ownLists(q, owners))
	}
	for dir := range dirs {
		errs = append(errs, ownSums(q, dir, sums))
	}
	return errors.Join(errs...)
}

// ownLists reads the lists NAME.list and NAME:ARCHITECTURE.list: a path a line.
func ownLists(q *catalog.OwnerSearch, owners map[string]string) error {
	diverted, err := readDiversions(q)
	listed := q.EachFile(path.Join(q.Root, infoDir),
		func(base string) bool {
			name, ok := strings.CutSuffix(base, listSuffix)
			return ok && owners[name] != ""
		},
		func(base string, data []byte) {
			key := strings.TrimSuffix(base, listSuffix)
			owner := owners[key]
			name, _, _ := strings.Cut(key, ":")
			for len(data) > 0 {
				var file []byte
				file, data, _ = bytes.Cut(data, []byte("\n"))
				if len(diverted) > 0 {
					if d, ok := diverted[string(file)]; ok && d.by != name {
						file = d.to
					}
				}
				q.Own(file, owner)
			}
		})
	return errors.Join(err, listed)
}

// readDiversions reads the diversions by their paths: three lines for each, as dpkg-divert writes them.
func readDiversions(q *catalog.OwnerSearch) (map[string]diversion, error) {
	data, err := q.ReadFile(path.Join(q.Root, diversionsFile), maxDiversionBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Base(diversionsFile), err)
	}
	return parseDiversions(data), nil
}

func parseDiversions(data []byte) map[string]diversion {
	out := map[string]diversion{}
	lines := bytes.Split(data, []byte("\n"))
	for ; len(lines) >= 3; lines = lines[3:] {
		out[string(lines[0])] = diversion{to: lines[1], by: string(lines[2])}
	}
	return out
}

// ownSums reads checksums NAME.md5sums next to the files of packages: 32 digits, two spaces and a path a line.
func ownSums(q *catalog.OwnerSearch, dir string, owners map[string]string) error {
	ownerOf := func(base string) string {
		name, ok := strings.CutSuffix(base, sumsSuffix)
		if !ok {
			return ""
		}
		return owners[path.Join(dir, name)]
	}
	return q.EachFile(dir, func(base string) bool { return ownerOf(base) != "" }, func(base string, data []byte) {
		owner := ownerOf(base)
		for len(data) > 0 {
			var line []byte
			line, data, _ = bytes.Cut(data, []byte("\n"))
			if _, file, ok := bytes.Cut(line, []byte("  ")); ok {
				q.Own(file, owner)
			}
		}
	})
}
