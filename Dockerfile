FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
RUN python -m venv /opt/kwsniff
COPY requirements.lock ./
RUN /opt/kwsniff/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY kwsniff kwsniff
RUN /opt/kwsniff/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim
COPY --from=build /opt/kwsniff /opt/kwsniff
ENV PATH=/opt/kwsniff/bin:$PATH
WORKDIR /captures
ENTRYPOINT ["kwsniff"]
CMD ["--help"]
