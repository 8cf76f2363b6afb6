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

// scanFieldNames are the fields that are stored in addition to the report; others are ignored.
var scanFieldNames = map[string]bool{
	"scanner": true, "version": true, "database": true, "scanned": true, "partial": true, "content_id": true,
	"counts": true,
}

// splitScan reads a JSON object, writes its field "report", which must be an object, and returns the other
// fields. It takes little memory however long the body is.
func splitScan(body io.Reader, report io.Writer) (*scanFields, error) {
	c := &jsonCopier{in: bufio.NewReaderSize(body, 64<<10)}
	f := &scanFields{fields: map[string]json.RawMessage{}}
	if _, err := c.expect('{', '{'); err != nil {
		return nil, err
	}
	b, err := c.expect('"', '}')
	for err == nil && b != '}' {
		c.unreadByte()
		if err = f.splitField(c, report); err != nil {
			break
		}
		if b, err = c.expect(',', '}'); err == nil && b == ',' {
			b, err = c.expect('"', '"')
		}
	}
	if err != nil {
		return nil, err
	}
	if b, err := c.nextToken(); err == nil {
		return nil, c.syntaxError("found %q behind the object", b)
	} else if _, end := errors.AsType[*jsonError](err); !end {
		return nil, err
	}
	if f.fields[reportField] == nil {
		return nil, farm.Invalid(reportField, "is required")
	}
	return f, nil
}

const reportField = "report"

// splitField reads a field.
func (f *scanFields) splitField(c *jsonCopier, report io.Writer) error {
	name, err := readFieldName(c)
	switch {
	case err != nil:
		return err
	case name == reportField && f.fields[name] != nil:
		return farm.Invalid(name, "occurs twice")
	case name == reportField:
		f.fields[name] = json.RawMessage("{}") // it was present
		return copyReport(c, report)
	case scanFieldNames[name]:
		f.fields[name], err = captureField(c, name, func() error { return c.copyValue(maxJSONDepth) })
		return err
	}
	c.out = bufio.NewWriter(io.Discard)
	return c.copyValue(maxJSONDepth)
}

// readFieldName reads a name with its colon.
func readFieldName(c *jsonCopier) (string, error) {
	raw, err := captureField(c, "The name of a field", c.copyKey)
	if err != nil {
		return "", err
	}
	var name string
	err = json.Unmarshal(raw[:len(raw)-1], &name)
	return name, err
}

// captureField returns the text that do copies.
func captureField(c *jsonCopier, name string, do func() error) (json.RawMessage, error) {
	var text bytes.Buffer
	c.out = bufio.NewWriterSize(&fieldBuffer{&text, name}, 512)
	if err := do(); err != nil {
		return nil, err
	}
	err := c.out.Flush()
	return text.Bytes(), err
}

func copyReport(c *jsonCopier, report io.Writer) error {
	c.out = bufio.NewWriterSize(&storeErrorWriter{report}, 64<<10)
	if b, err := c.nextToken(); err != nil {
		return err
	} else if b != '{' {
		return farm.Invalid(reportField, "must be a JSON object")
	}
	if err := c.copyList('}', maxJSONDepth); err != nil {
		return err
	}
	return c.out.Flush()
}

// fieldBuffer is a writer that refuses a field that is too long.
type fieldBuffer struct {
	*bytes.Buffer

	name string
}

func (s *fieldBuffer) Write(p []byte) (int, error) {
	if s.Len()+len(p) > maxScanField {
		return 0, farm.Invalid(s.name, "has more than %d bytes", maxScanField)
	}
	return s.Buffer.Write(p)
}

// storeErrorWriter marks write errors, which are not faults of the body.
type storeErrorWriter struct{ io.Writer }

type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

func (s *storeErrorWriter) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = storeError{err}
	}
	return n, err
}

// bodyReadError returns the error for a body that could not be read.
func bodyReadError(err error) error {
	var tooLong *http.MaxBytesError
	var wrong *jsonError
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
