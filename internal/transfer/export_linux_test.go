package transfer

// Cloned is for a test of what no file system here can be made to say.
var Cloned = cloned
