package registryrest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/buildyard/buildyard/internal/farm"
)

// maxScanField bounds a field of scan results other than the report, in bytes.
const maxScanField = 4 << 10

// scanNames are the fields that are stored in addition to the report; others are ignored.
var scanNames = map[string]bool{
	"scanner": true, "version": true, "database": true, "scanned": true, "partial": true, "content_id": true,
	"counts": true,
}

// splitScan reads a JSON object, writes its field "report", which must be an object, and returns the other
// fields. It takes little memory however long the body is.
func splitScan(body io.Reader, report io.Writer) (*scanFields, error) {
	c := &jsonCopy{in: bufio.NewReaderSize(body, 64<<10)}
	f := &scanFields{fields: map[string]json.RawMessage{}}
	if _, err := c.want('{', '{'); err != nil {
		return nil, err
	}
	b, err := c.want('"', '}')
	for err == nil && b != '}' {
		c.back()
		if err = f.split(c, report); err != nil {
			break
		}
		if b, err = c.want(',', '}'); err == nil && b == ',' {
			b, err = c.want('"', '"')
		}
	}
	if err != nil {
		return nil, err
	}
	if b, err := c.token(); err == nil {
		return nil, c.fault("found %q behind the object", b)
	} else if _, end := errors.AsType[*jsonFault](err); !end {
		return nil, err
	}
	if f.fields[reportField] == nil {
		return nil, farm.Invalid(reportField, "is required")
	}
	return f, nil
}

const reportField = "report"

// split reads a field.
func (f *scanFields) split(c *jsonCopy, report io.Writer) error {
	name, err := fieldName(c)
	switch {
	case err != nil:
		return err
	case name == reportField && f.fields[name] != nil:
		return farm.Invalid(name, "occurs twice")
	case name == reportField:
		f.fields[name] = json.RawMessage("{}") // it was present
		return copyReport(c, report)
	case scanNames[name]:
		f.fields[name], err = captured(c, name, func() error { return c.value(maxDepth) })
		return err
	}
	c.out = bufio.NewWriter(io.Discard)
	return c.value(maxDepth)
}

// fieldName reads a name with its colon.
func fieldName(c *jsonCopy) (string, error) {
	raw, err := captured(c, "The name of a field", c.key)
	if err != nil {
		return "", err
	}
	var name string
	err = json.Unmarshal(raw[:len(raw)-1], &name)
	return name, err
}

// captured returns the text that do copies.
func captured(c *jsonCopy, name string, do func() error) (json.RawMessage, error) {
	var text bytes.Buffer
	c.out = bufio.NewWriterSize(&shortField{&text, name}, 512)
	if err := do(); err != nil {
		return nil, err
	}
	err := c.out.Flush()
	return text.Bytes(), err
}

func copyReport(c *jsonCopy, report io.Writer) error {
	c.out = bufio.NewWriterSize(&storeErrors{report}, 64<<10)
	if b, err := c.token(); err != nil {
		return err
	} else if b != '{' {
		return farm.Invalid(reportField, "must be a JSON object")
	}
	if err := c.list('}', maxDepth); err != nil {
		return err
	}
	return c.out.Flush()
}

// shortField is a writer that refuses a field that is too long.
type shortField struct {
	*bytes.Buffer

	name string
}

func (s *shortField) Write(p []byte) (int, error) {
	if s.Len()+len(p) > maxScanField {
		return 0, farm.Invalid(s.name, "has more than %d bytes", maxScanField)
	}
	return s.Buffer.Write(p)
}

// storeErrors marks write errors, which are not faults of the body.
type storeErrors struct{ io.Writer }

type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

func (s *storeErrors) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = storeError{err}
	}
	return n, err
}

// unread returns the error for a body that could not be read.
func unread(err error) error {
	var tooLong *http.MaxBytesError
	var wrong *jsonFault
	var stored storeError
	var said *farm.Error
	switch {
	case errors.As(err, &stored):
		return stored.error
	case errors.As(err, &tooLong):
		return farm.Errorf(farm.CodeTooLarge, "The request body has more than %d bytes", tooLong.Limit)
	case errors.As(err, &said):
		return said
	case errors.As(err, &wrong):
		return farm.Errorf(farm.CodeInvalid, "The request body is not a JSON object: %v", wrong)
	}
	return farm.Errorf(farm.CodeInvalid, "The request body could not be read")
}
