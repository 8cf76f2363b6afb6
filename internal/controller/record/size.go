package record

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/farm"
)

// InstanceSize returns an upper bound of the bytes of an instance's stored record, without its
// script. Tables call it at every change of an instance, so it does not encode.
func InstanceSize(i *farm.Instance) int {
	const fixed, perField = 1 << 10, 128
	size := fixed + textSize(i.Name) + textSize(i.ExternalID) + textSize(i.Options.NameTemplate)
	for _, p := range i.Options.Ports {
		size += perField + textSize(p.Name)
	}
	for key, value := range i.Metadata {
		size += perField + textSize(key)
		if text, ok := value.(string); ok {
			size += textSize(text)
		} else {
			size += EncodedSize(value)
		}
	}
	return size
}

// textSize bounds the bytes of a text in JSON, without its quotes.
func textSize(text string) int {
	size := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c == '<' || c == '>' || c == '&':
			size += 5 // \u003c
		case c == '"' || c == '\\' || c >= utf8.RuneSelf: // the line separator, of three bytes, takes six
			size++
		}
	}
	return size
}

// EncodedSize returns how many bytes a record has in the store.
func EncodedSize(record any) int {
	raw, _ := json.Marshal(record) // as the store does; what fails there is not stored
	return len(raw)
}
