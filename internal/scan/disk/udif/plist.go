package udif

import (
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

const (
	maxDepth  = 32 // of elements
	maxTables = 1024
)

// tablePath are the elements, and the keys of dictionaries before them, that a block table is in.
var tablePath = []plistElement{
	{"plist", ""}, {"dict", ""}, {"dict", "resource-fork"}, {"array", "blkx"}, {"dict", ""}, {"data", "Data"},
}

// plistElement is an open element.
type plistElement struct {
	name string
	key  string // the last key before it in its dictionary
}

// plistReader looks for block tables. The list is not made a value: that takes several times its memory, and
// recursion.
type plistReader struct {
	open   []plistElement
	keys   []string // the last key within each open element
	text   []byte   // of the innermost element, if it is a key or a table, without spaces
	tables [][]byte
}

// tablesOfPlist returns resource-fork/blkx/*/Data of a property list.
func tablesOfPlist(r io.Reader) ([][]byte, error) {
	var p plistReader
	for d := xml.NewDecoder(r); ; {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) && len(p.open) == 0 {
			return p.tables, nil
		}
		if err == nil {
			err = p.add(token)
		}
		if err != nil {
			return nil, chunked.Damaged("its property list: %v", err)
		}
	}
}

// add takes a token.
func (p *plistReader) add(token xml.Token) error {
	switch token := token.(type) {
	case xml.StartElement:
		if len(p.open) == maxDepth {
			return errors.New("its elements are nested too deeply")
		}
		key := ""
		if n := len(p.keys); n > 0 {
			key, p.keys[n-1] = p.keys[n-1], ""
		}
		if token.Name.Local == "key" {
			key = ""
		}
		p.open, p.keys = append(p.open, plistElement{token.Name.Local, key}), append(p.keys, "")
		p.text = p.text[:0]
	case xml.CharData:
		if n := len(p.open); n > 0 && (p.open[n-1].name == "key" || p.isTable()) {
			for _, c := range token {
				if c > ' ' {
					p.text = append(p.text, c)
				}
			}
		}
	case xml.EndElement:
		return p.end(token.Name.Local)
	}
	return nil
}

func (p *plistReader) isTable() bool { return slices.Equal(p.open, tablePath) }

// end closes the innermost element.
func (p *plistReader) end(name string) error {
	n := len(p.open)
	if n == 0 || p.open[n-1].name != name {
		return errors.New("an element is closed that is not open")
	}
	isTable := p.isTable()
	p.open, p.keys = p.open[:n-1], p.keys[:n-1]
	if name == "key" && n > 1 {
		p.keys[n-2] = string(p.text)
	}
	if !isTable {
		return nil
	}
	if len(p.tables) == maxTables {
		return errors.New("it has too many block tables")
	}
	table := make([]byte, base64.StdEncoding.DecodedLen(len(p.text)))
	size, err := base64.StdEncoding.Decode(table, p.text)
	p.tables = append(p.tables, table[:size])
	return err
}
