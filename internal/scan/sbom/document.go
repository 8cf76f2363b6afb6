package sbom

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Bounds on a document.
const (
	maxBytes      = 512 << 20
	maxComponents = 500_000
	maxDepth      = 64     // of components within each other
	maxNesting    = 10_000 // of lists and objects that are skipped, each of which takes memory
)

// ErrFormat reports a file that is not a bill of materials of a supported format.
var ErrFormat = errors.New("not a bill of materials: want CycloneDX (1.2 and later) or SPDX (2.2 or 2.3) in JSON")

// component is what both formats have of a component.
type component struct {
	kind      string // of CycloneDX: "library", "file"; the purpose of SPDX in lower case, with dashes
	group     string
	name      string
	version   string
	purl      string
	cpe       string
	licenses  []string
	locations []string
	values    map[string][]string // properties
}

// document is what is read of a file.
type document struct {
	format     string
	isOurs     bool // written by a scanner of this project
	incomplete bool // as the document claims
	components []component
	invalid    int // components of a wrong form
}

// read reads a document.
func read(name string) (*document, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("it is a directory")
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("it has %d bytes, more than %d", info.Size(), maxBytes)
	}
	return parse(io.LimitReader(f, maxBytes+1))
}

// parser reads a document of either format: the key that tells which may be the last.
type parser struct {
	*json.Decoder
	document
	cycloneDX, specVersion, spdx string
}

func parse(r io.Reader) (*document, error) {
	p := parser{Decoder: json.NewDecoder(r)}
	first, err := p.Token()
	if err != nil || first != json.Delim('{') {
		return nil, ErrFormat
	}
	if err := p.readKeys(); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the document ends early")
		}
		return nil, err
	}
	switch {
	case p.cycloneDX == "CycloneDX":
		p.format = "CycloneDX " + p.specVersion
		if !strings.HasPrefix(p.specVersion, "1.") {
			return nil, fmt.Errorf("%.40s is not supported: want CycloneDX 1", p.format)
		}
	case p.spdx != "":
		p.format = p.spdx
		if !strings.HasPrefix(p.spdx, "SPDX-2.") {
			return nil, fmt.Errorf("%.40s is not supported: want SPDX 2.2 or 2.3", p.format)
		}
	default:
		return nil, ErrFormat
	}
	if p.invalid > 0 {
		p.incomplete = true
	}
	return &p.document, nil
}

// readKeys reads the members of the document.
func (p *parser) readKeys() error {
	for p.More() {
		key, err := p.Token()
		if err != nil {
			return err
		}
		switch key {
		case "bomFormat":
			err = p.decode(&p.cycloneDX)
		case "specVersion":
			err = p.decode(&p.specVersion)
		case "spdxVersion":
			err = p.decode(&p.spdx)
		case "metadata":
			err = p.readMetadata()
		case "creationInfo":
			err = p.readCreation()
		case "compositions":
			err = p.readCompositions()
		case "components":
			err = p.eachElement(func() error { return p.readCycloneDX(0) })
		case "packages":
			err = p.eachElement(p.readSPDX)
		default:
			err = p.skip()
		}
		if err != nil {
			return err
		}
	}
	_, err := p.Token()
	return err
}

// incompleteComment begins the comment of SPDX documents that the scanners of this project write of partial scans.
const incompleteComment = "scan partial: files"

// decode decodes a value. One of another type is left out.
func (p *parser) decode(into any) error {
	err := p.Decode(into)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return nil
	}
	return err
}

// eachElement calls read for each element of a list.
func (p *parser) eachElement(read func() error) error {
	first, err := p.Token()
	if err != nil {
		return err
	}
	if first != json.Delim('[') {
		if first != nil {
			p.invalid++
		}
		return p.skipRest(first)
	}
	for p.More() {
		if err := read(); err != nil {
			return err
		}
	}
	_, err = p.Token()
	return err
}

// skip reads a value without keeping it.
func (p *parser) skip() error {
	first, err := p.Token()
	if err != nil {
		return err
	}
	return p.skipRest(first)
}

// skipRest reads the rest of a value.
func (p *parser) skipRest(first json.Token) error {
	depth := 0
	for t := first; ; {
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth <= 0 {
			return nil
		}
		if depth > maxNesting {
			return fmt.Errorf("it is nested in more than %d levels", maxNesting)
		}
		var err error
		if t, err = p.Token(); err != nil {
			return err
		}
	}
}

// isOurTool reports whether a program that wrote a document is a scanner of this project.
func isOurTool(name string) bool { return name == "imagescan" || name == "hostscan" }

// add adds a component.
func (p *parser) add(c component) error {
	if len(p.components) == maxComponents {
		return fmt.Errorf("it has more than %d components", maxComponents)
	}
	p.components = append(p.components, c)
	return nil
}
