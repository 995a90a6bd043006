"""The kernel's end: peer.py serve PORT echoes one connection; peer.py ask HOST PORT FILE sends a file and says the SHA-256 of what comes back."""

import hashlib
import socket
import sys
import threading

if sys.argv[1] == "serve":
    with socket.create_server(("", int(sys.argv[2]))) as door:
        stream, _ = door.accept()
        while data := stream.recv(65536):
            stream.sendall(data)
        stream.close()
else:
    host, port, path = sys.argv[2:]
    with open(path, "rb") as file:
        text = file.read()
    stream = socket.create_connection((host, int(port)), timeout=30)

    def send():
        stream.sendall(text)
        stream.shutdown(socket.SHUT_WR)

    threading.Thread(target=send).start()
    back = hashlib.sha256()
    while data := stream.recv(65536):
        back.update(data)
    print(back.hexdigest())
