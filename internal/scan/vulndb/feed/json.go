package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

const maxElementBytes = 64 << 20 // bytes of one element of a feed

// formatKeys are keys of the outermost object that identify a format.
var formatKeys = map[string]Kind{
	"schema_version": kindOSV, "id": kindOSV, "affected": kindOSV, "aliases": kindOSV, "modified": kindOSV,
	"_annotation": kindOverride,
	"dataType":    kindCVE, "dataVersion": kindCVE, "cveMetadata": kindCVE, "containers": kindCVE,
	"resultsPerPage": kindNVD, "totalResults": kindNVD, "format": kindNVD,
	"catalogVersion": kindKEV, "dateReleased": kindKEV,
}

// recognizeJSON checks the outermost keys as far as the head goes.
func recognizeJSON(head []byte) Kind {
	dec := json.NewDecoder(bytes.NewReader(head))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return ""
		}
		if kind, ok := formatKeys[key]; ok {
			return kind
		}
		if key == "vulnerabilities" {
			return recognizeElement(dec)
		}
		var skip json.RawMessage
		if dec.Decode(&skip) != nil {
			return ""
		}
	}
}

// recognizeElement checks the first key of the first vulnerability.
func recognizeElement(dec *json.Decoder) Kind {
	for _, want := range []json.Token{json.Delim('['), json.Delim('{')} {
		if t, err := dec.Token(); err != nil || t != want {
			return ""
		}
	}
	for {
		t, err := dec.Token()
		key, ok := t.(string)
		switch {
		case err != nil || !ok:
			return ""
		case key == "cve":
			return kindNVD
		case key == "cveID":
			return kindKEV
		}
		var skip json.RawMessage
		if dec.Decode(&skip) != nil {
			return ""
		}
	}
}

// emitElements emits each element of the list of vulnerabilities of a large file.
func emitElements(r io.Reader, it Item, emit func(Item) error) error {
	dec := NewDecoder(r)
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%s: not a JSON object: %w", it.Name, cmpErr(err))
	}
	listed := false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return fmt.Errorf("%s: %w", it.Name, err)
		}
		if key == "vulnerabilities" {
			listed = true
			err = emitList(dec, &it, emit)
		} else {
			var value json.RawMessage
			err = dec.Decode(&value)
			it.setDate(key, value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", it.Name, err)
		}
	}
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("%s: incomplete JSON object: %w", it.Name, err)
	}
	if !listed {
		return fmt.Errorf("%s: the list of vulnerabilities is missing", it.Name)
	}
	return nil
}

func cmpErr(err error) error {
	if err != nil {
		return err
	}
	return errors.New("unexpected JSON value")
}

// setDate records the date of a feed.
func (it *Item) setDate(key json.Token, value json.RawMessage) {
	var s string
	if key != "timestamp" && key != "dateReleased" || json.Unmarshal(value, &s) != nil {
		return
	}
	if t := parseTime(s); !t.IsZero() {
		it.Time = t
	}
}

func emitList(dec *json.Decoder, it *Item, emit func(Item) error) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("the vulnerabilities are not a list: %w", cmpErr(err))
	}
	for n := 0; dec.More(); n++ {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		if err := emit(Item{Kind: it.Kind, Name: fmt.Sprintf("%s[%d]", it.Name,
			n), Time: it.Time, Data: raw}); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}

// NewDecoder returns a decoder of JSON that refuses values of more than 64 MiB.
func NewDecoder(r io.Reader) *json.Decoder {
	bound := &boundedReader{r: r}
	dec := json.NewDecoder(bound)
	bound.decodedBytes = dec.InputOffset
	return dec
}

// boundedReader refuses to read far ahead of what was decoded, so that an endless element does not fill
// the memory.
type boundedReader struct {
	r            io.Reader
	bytesRead    int64
	decodedBytes func() int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.decodedBytes != nil && b.bytesRead-b.decodedBytes() > maxElementBytes {
		return 0, errors.New("a list element has more than 64 MiB")
	}
	n, err := b.r.Read(p)
	b.bytesRead += int64(n)
	return n, err
}

// epssDate finds "score_date:2026-08-21T00:00:00Z" in the first line.
func epssDate(line string) time.Time {
	const mark = "score_date:"
	for i := 0; i+len(mark) <= len(line); i++ {
		if line[i:i+len(mark)] == mark {
			rest := line[i+len(mark):]
			if len(rest) >= len(time.DateOnly) {
				return parseTime(rest[:len(time.DateOnly)])
			}
		}
	}
	return time.Time{}
}
