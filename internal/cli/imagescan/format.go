package imagescan

import "strings"

// about prefixes a text with the name of its subject, unless it has the name already.
func about(name, text string) string {
	if strings.Contains(text, name) {
		return text
	}
	return name + ": " + text
}
