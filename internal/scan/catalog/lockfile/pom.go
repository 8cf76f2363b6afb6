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
	maxPOMBytes        = 1 << 20   // bytes of one
	maxExpansions      = 1_000_000 // properties that are expanded
	maxExpandedBytes   = 16 << 20  // bytes of the expansion
	maxPropertyNesting = 100       // properties within properties
	maxProperties      = 10_000    // properties, whose values are each compared with one another
	propertiesElement  = "properties"
)

var errTooManyProperties = fmt.Errorf("%w: the POM has more than %d properties", catalog.ErrTooLarge, maxProperties)

var errExpansionTooLarge = fmt.Errorf("%w: the properties of the POM refer to each other without end",
	catalog.ErrTooLarge)

// pomTree is a tree for the reader of pom.xml files, which expands properties without limits: a few
// lines could take all memory. A file that it would read is checked first, together with those
// before it.
type pomTree struct {
	scalibrfs.FS
	propertyValues  map[string][]string // of properties, in any of the files
	propertyCount   int                 // properties found
	expandableTexts []string            // texts with properties
	err             error
}

// Open opens a file whose properties are harmless.
func (p *pomTree) Open(name string) (fs.File, error) {
	f, err := p.FS.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxPOMBytes+1))
	if err == nil {
		err = p.checkFile(data)
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

// checkFile checks one more file.
func (p *pomTree) checkFile(data []byte) error {
	if len(data) > maxPOMBytes {
		return fmt.Errorf("%w: the POM has more than %d bytes", catalog.ErrTooLarge, maxPOMBytes)
	}
	if err := p.collectProperties(data); err != nil {
		return err
	}
	u := propertyExpander{values: p.propertyValues}
	for _, text := range p.expandableTexts {
		if !u.expand(text) {
			return errExpansionTooLarge
		}
	}
	return nil
}

// collectProperties records the texts of all elements, and the values of properties.
func (p *pomTree) collectProperties(data []byte) error {
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
			p.recordText(names, string(bytes.TrimSpace(texts[last])))
			names, texts = names[:last], texts[:last]
		}
		if p.propertyCount > maxProperties {
			return errTooManyProperties
		}
	}
}

// recordText records the text of a nested element. Besides properties, a project's version and group may
// be expanded, too.
func (p *pomTree) recordText(names []string, text string) {
	last := len(names) - 1
	name := names[last]
	if strings.Contains(text, "${") {
		p.expandableTexts = append(p.expandableTexts, text)
	}
	add := func(key string) {
		if !slices.Contains(p.propertyValues[key], text) {
			p.propertyValues[key] = append(p.propertyValues[key], text)
		}
	}
	switch {
	case last > 0 && names[last-1] == propertiesElement:
		add(name)
	case last == 1 && (name == "version" || name == "groupId"):
	case last == 2 && names[1] == "parent" && (name == "version" || name == "groupId"):
		name = "parent." + name
	default:
		return
	}
	p.propertyCount++
	for _, key := range []string{name, "pom." + name, "project." + name} {
		add(key)
	}
}

// propertyExpander expands properties in texts as their reader does, and counts.
type propertyExpander struct {
	values        map[string][]string
	expanding     []string // keys being expanded
	expansions    int
	expandedBytes int
}

// expand reports whether the expansion of a text is within the limits.
func (u *propertyExpander) expand(text string) bool {
	u.expansions++
	u.expandedBytes += len(text)
	if u.expansions > maxExpansions || u.expandedBytes > maxExpandedBytes || len(u.expanding) > maxPropertyNesting {
		return false
	}
	for {
		_, rest, ok := strings.Cut(text, "${")
		key, after, closed := strings.Cut(rest, "}")
		if !ok || !closed || slices.Contains(u.expanding, key) { // a cycle ends there
			return true
		}
		u.expanding = append(u.expanding, key)
		for _, value := range u.values[key] {
			if !u.expand(value) {
				return false
			}
		}
		u.expanding = u.expanding[:len(u.expanding)-1]
		text = after
	}
}
