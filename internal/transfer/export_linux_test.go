package transfer

// Cloned is for tests of errors that the file systems here do not return.
var Cloned = cloneError
