package lockfile

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/google/osv-scalibr/clients/datasource"
	scalibrfs "github.com/google/osv-scalibr/fs"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Limits of a pom.xml and of its parents.
const (
	maxPOM     = 1 << 20   // bytes of one
	maxSteps   = 1_000_000 // properties that are expanded
	maxUnfold  = 16 << 20  // bytes of the expansion
	maxInside  = 100       // properties within properties
	maxNoted   = 10_000    // properties, whose values are each compared with one another
	properties = "properties"
)

var errNoted = fmt.Errorf("%w: it has more than %d properties", catalog.ErrTooLarge, maxNoted)

var errUnfold = fmt.Errorf("%w: its properties unfold without end", catalog.ErrTooLarge)

// poms is a tree for the reader of pom.xml files, which expands properties without limits: a few
// lines could take all memory. A file that it would read is checked first, together with those
// before it.
type poms struct {
	scalibrfs.FS
	values map[string][]string // of properties, in any of the files
	noted  int                 // properties found
	texts  []string            // texts with properties
	err    error
}

// Open opens a file whose properties are harmless.
func (p *poms) Open(name string) (fs.File, error) {
	f, err := p.FS.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxPOM+1))
	if err == nil {
		err = p.add(data)
	}
	if err == nil {
		info, statErr := f.Stat()
		return &pomFile{bytes.NewReader(data), info}, errors.Join(statErr, f.Close())
	}
	p.err = err
	return nil, errors.Join(err, f.Close())
}

// pomFile is a checked file: its reader gets the bytes that were checked.
type pomFile struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f *pomFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *pomFile) Close() error               { return nil }

// add checks one more file.
func (p *poms) add(data []byte) error {
	if len(data) > maxPOM {
		return fmt.Errorf("%w: more than %d bytes", catalog.ErrTooLarge, maxPOM)
	}
	if err := p.collect(data); err != nil {
		return err
	}
	u := propertyExpander{values: p.values}
	for _, text := range p.texts {
		if !u.put(text) {
			return errUnfold
		}
	}
	return nil
}

// collect records the texts of all elements, and the values of properties.
func (p *poms) collect(data []byte) error {
	d := datasource.NewMavenDecoder(bytes.NewReader(data))
	var names []string
	var texts [][]byte
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch e := token.(type) {
		case xml.StartElement:
			names, texts = append(names, e.Name.Local), append(texts, nil)
		case xml.CharData:
			if len(texts) > 0 {
				texts[len(texts)-1] = append(texts[len(texts)-1], e...)
			}
		case xml.EndElement:
			last := len(names) - 1
			p.note(names, string(bytes.TrimSpace(texts[last])))
			names, texts = names[:last], texts[:last]
		}
		if p.noted > maxNoted {
			return errNoted
		}
	}
}

// note records the text of a nested element. Besides properties, a project's version and group may
// be expanded, too.
func (p *poms) note(names []string, text string) {
	last := len(names) - 1
	name := names[last]
	if strings.Contains(text, "${") {
		p.texts = append(p.texts, text)
	}
	add := func(key string) {
		if !slices.Contains(p.values[key], text) {
			p.values[key] = append(p.values[key], text)
		}
	}
	switch {
	case last > 0 && names[last-1] == properties:
		add(name)
	case last == 1 && (name == "version" || name == "groupId"):
	case last == 2 && names[1] == "parent" && (name == "version" || name == "groupId"):
		name = "parent." + name
	default:
		return
	}
	p.noted++
	for _, key := range []string{name, "pom." + name, "project." + name} {
		add(key)
	}
}

// propertyExpander expands properties in texts as their reader does, and counts.
type propertyExpander struct {
	values map[string][]string
	inside []string // keys being expanded
	steps  int
	bytes  int
}

// put reports whether the expansion of a text is within the limits.
func (u *propertyExpander) put(text string) bool {
	u.steps++
	u.bytes += len(text)
	if u.steps > maxSteps || u.bytes > maxUnfold || len(u.inside) > maxInside {
		return false
	}
	for {
		_, rest, ok := strings.Cut(text, "${")
		key, after, closed := strings.Cut(rest, "}")
		if !ok || !closed || slices.Contains(u.inside, key) { // a cycle ends there
			return true
		}
		u.inside = append(u.inside, key)
		for _, value := range u.values[key] {
			if !u.put(value) {
				return false
			}
		}
		u.inside = u.inside[:len(u.inside)-1]
		text = after
	}
}
