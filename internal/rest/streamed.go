package rest

import (
	"bufio"
	"io"
	"net/http"

	"github.com/klauspost/compress/gzip"
)

// WriteStreamed writes the successful response of a RawHandlerFunc whose body is too long to keep in memory.
// body writes it as JSON. The tag consists of characters that need no quoting, and differs for different
// bodies. An error of body breaks the connection, so that a client does not take a partial body for the whole.
func WriteStreamed(w http.ResponseWriter, r *http.Request, tag string, body func(io.Writer) error) {
	packed := wantsGzip(w, r, gzipMinBytes) // sets the Vary header, also when the body is not sent
	if writeNotModified(w, r, tag) {
		return
	}
	w.Header()["Content-Type"] = jsonContentType
	if packed {
		w.Header()["Content-Encoding"] = []string{"gzip"}
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	out := bufio.NewWriterSize(w, writeBufferBytes)
	err := writeStream(out, packed, body)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// writeStream writes the envelope around a body.
func writeStream(out io.Writer, packed bool, body func(io.Writer) error) error {
	if packed {
		pack, _ := gzipPool.Get().(*gzip.Writer)
		defer gzipPool.Put(pack)
		pack.Reset(out)
		if err := writeStream(pack, false, body); err != nil {
			return err
		}
		return pack.Close()
	}
	if _, err := io.WriteString(out, envelopeStart); err != nil {
		return err
	}
	if err := body(out); err != nil {
		return err
	}
	_, err := io.WriteString(out, envelopeEnd)
	return err
}
