package mirror

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// modifiedIDs is when each record of an ecosystem was last modified, by ID, to the second.
type modifiedIDs map[string]time.Time

const (
	maxIndexBytes = 512 << 20
	maxLineBytes  = 512
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:~+-]{1,120}$`)

// validID reports whether an ID can be part of a URL and of a file name as it is.
func validID(id string) bool { return idPattern.MatchString(id) && !strings.Contains(id, "..") }

// parseModifiedIDs reads a modified_id.csv: lines of a date and an ID. IDs that cannot be file names, and dates that
// no calendar has, are left out.
func parseModifiedIDs(r io.Reader) (modifiedIDs, error) {
	ids := modifiedIDs{}
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), maxLineBytes)
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || n == 1 && strings.HasPrefix(line, "modified") {
			continue
		}
		date, id, ok := strings.Cut(line, ",")
		t, err := parseModified(date)
		if !ok || err != nil {
			return nil, fmt.Errorf("line %d is not a date and an ID: %.60q", n, line)
		}
		if len(ids) > maxEntries {
			return nil, fmt.Errorf("more than %d IDs", maxEntries)
		}
		if validID(id) && t.Year() > 0 && t.Year() < 9999 && !t.Before(ids[id]) {
			ids[id] = t
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, errors.New("the list of modified records is empty")
	}
	return ids, nil
}

// parseModified parses the date of a record, to the second.
func parseModified(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UTC().Truncate(time.Second), err
}

// format writes the list in the form of modified_id.csv, sorted by ID.
func (ids modifiedIDs) format() []byte {
	var b bytes.Buffer
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		b.WriteString(ids[id].Format(time.RFC3339))
		b.WriteString("," + id + "\n")
	}
	return b.Bytes()
}

// difference is what a source has that a mirror does not have, and the other way round. Both are sorted.
type difference struct{ changed, removed []string }

func (d difference) size() int { return len(d.changed) + len(d.removed) }

// since returns what has changed from a former list to this one. A record that is newer than all of this list is not
// missing there: the list is older than it.
func (ids modifiedIDs) since(former modifiedIDs) difference {
	var d difference
	var newest time.Time
	for id, t := range ids {
		if was, ok := former[id]; !ok || t.After(was) {
			d.changed = append(d.changed, id)
		}
		if t.After(newest) {
			newest = t
		}
	}
	for id, was := range former {
		if _, ok := ids[id]; !ok && !was.After(newest) {
			d.removed = append(d.removed, id)
		}
	}
	slices.Sort(d.changed)
	slices.Sort(d.removed)
	return d
}
