package feed

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// Item is a part of a feed that is parsed alone: a file, or an element of a large one.
type Item struct {
	Kind Kind
	Name string    // where it was found
	Time time.Time // of its file, or as stated in its file
	Data []byte
}

// Count returns the number of records in the item: more than one for lines of a table.
func (it Item) Count() int {
	if it.Kind != kindEPSS {
		return 1
	}
	return bytes.Count(bytes.TrimSpace(it.Data), []byte("\n")) + 1
}

// Kind is the format of an item.
type Kind string

const (
	kindOSV      Kind = "OSV record"
	kindOSVYAML  Kind = "OSV record in YAML"
	kindRubySec  Kind = "RubySec advisory"
	kindRustSec  Kind = "RustSec advisory"
	kindNVD      Kind = "NVD feed element"
	kindOverride Kind = "NVD override"
	kindCVE      Kind = "CVE record"
	kindKEV      Kind = "KEV entry"
	kindEPSS     Kind = "EPSS lines"
	kindTracker  Kind = "Debian tracker package"
)

var parsers = map[Kind]func(Item) Record{
	kindOSV: parseOSV, kindOSVYAML: parseOSV, kindRubySec: parseRubySec, kindRustSec: parseRustSec,
	kindNVD: parseNVD, kindOverride: parseOverride, kindCVE: parseCVE, kindKEV: parseKEV,
}

// Parse reads the records of an item. Input that makes a parser panic is a bad record.
func (it Item) Parse() (records []Record) {
	defer func() {
		if p := recover(); p != nil {
			records = []Record{unreadableRecord(string(it.Kind), it.Name,
				fmt.Sprintf("it broke its reader: %.100v", p))}
		}
	}()
	if it.Kind == kindEPSS {
		for line := range strings.Lines(string(it.Data)) {
			records = append(records, parseEPSS(line, it.Time))
		}
		return records
	}
	if it.Kind == kindTracker {
		return parseTracker(it)
	}
	parse, ok := parsers[it.Kind]
	if !ok {
		return nil
	}
	r := parse(it)
	if r.Modified.IsZero() && it.Time.Year() >= minYear {
		r.Modified = it.Time.UTC()
	}
	return []Record{r}
}

// recognizeFormat returns the format of a file by its name and first bytes; "" for other files.
func recognizeFormat(ext string, head []byte) Kind {
	switch ext {
	case ".json":
		if trackerHead.Match(head) {
			return kindTracker
		}
		return recognizeJSON(head)
	case ".yaml", ".yml":
		return recognizeYAML(head)
	case ".md":
		if bytes.HasPrefix(bytes.TrimSpace(head), []byte(tomlFence+"toml")) {
			return kindRustSec
		}
	case ".csv":
		if bytes.HasPrefix(head, []byte("#model_version")) || bytes.HasPrefix(head, []byte("cve,epss,")) {
			return kindEPSS
		}
	}
	return ""
}

// recognizeYAML checks the top-level keys.
func recognizeYAML(head []byte) Kind {
	for line := range bytes.Lines(head) {
		key, _, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		switch string(key) {
		case "gem", "engine", "library":
			return kindRubySec
		case "id", "affected", "modified", "schema_version":
			return kindOSVYAML
		}
	}
	return ""
}
