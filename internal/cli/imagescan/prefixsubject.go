package imagescan

import "strings"

// prefixSubject prefixes a text with the name of its subject, unless it has the name already.
func prefixSubject(name, text string) string {
	if strings.Contains(text, name) {
		return text
	}
	return name + ": " + text
}
